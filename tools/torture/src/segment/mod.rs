//! Processes that share a segment, and are killed, stopped, forked, executed and started again.
//!
//! An auditor starts worker processes, each of which executes this program again. Each says in
//! memory of its own, the witness, what it is about to do and what it has done. While a worker is
//! stopped, and whenever one was killed, the values of the segment must agree with that. When all
//! workers of a round are dead, all units must be back.
//!
//! A worker's units are taken out of the witness while it is stopped, and then it is killed. So no
//! unit is in the witness that the library may already have returned.

mod audit;
mod objects;
mod plan;
mod process;
mod report;
mod witness;
mod worker;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use thiscpu::Segment;
use thiscpu_test_support::tool::{progress, stop};

use self::audit::Audit;
use self::objects::Objects;
pub(crate) use self::plan::{Orders, Plan};
use self::process::{Ended, Process};
use self::report::Counts;
pub(crate) use self::report::Report;
use self::witness::Witness;
pub(crate) use self::worker::work;

/// The time between two rounds; at the end of each, all workers are killed.
const ROUND: Duration = Duration::from_secs(1);

/// The auditor's side of a run.
struct Run<'a> {
    plan: &'a Plan,
    segment: &'a Segment,
    witness: &'static Witness,
    witness_fd: OwnedFd,
    audit: Audit<'a>,
    workers: Vec<Process>,
    random: Rng,
    counts: Counts,
}

/// Why a run ends before its time.
type Failure = String;

/// Runs workers for as long as `plan` says, and holds them to account.
///
/// # Errors
///
/// If there is no segment, or no worker can be started.
pub(crate) fn run(plan: &Plan) -> Result<Report, String> {
    stop::listen();
    process::adopt_orphans();
    let began = Instant::now();
    let segment = Segment::anonymous().map_err(|why| why.to_string())?;
    let objects = Objects::of(&segment).map_err(|why| why.to_string())?;
    let (witness, witness_fd) = Witness::create().map_err(|why| format!("no witness: {why}"))?;
    let mut run = Run {
        plan,
        segment: &segment,
        witness,
        witness_fd,
        audit: Audit::new(&objects, witness),
        workers: Vec::new(),
        random: plan.random(),
        counts: Counts::default(),
    };
    let result = run.rounds(began);
    let failures: Vec<String> = result.err().into_iter().collect();
    run.workers.iter_mut().for_each(Process::kill);
    Ok(Report::new(plan, witness, &run.counts, began.elapsed(), &failures))
}

impl Run<'_> {
    fn rounds(&mut self, began: Instant) -> Result<(), Failure> {
        let plan = self.plan;
        let bar = progress::bar(plan.duration.as_millis() as u64);
        let is_over = |counts: &Counts| {
            began.elapsed() >= plan.duration || counts.kills >= plan.kills || stop::is_requested()
        };
        while !is_over(&self.counts) {
            let round = Instant::now();
            for number in 0..plan.processes() {
                let worker = self.start(number)?;
                self.workers.push(worker);
            }
            while round.elapsed() < ROUND && !is_over(&self.counts) {
                thread::sleep(Duration::from_micros(self.random.u64(..4000)));
                self.disturb()?;
                bar.set_position(began.elapsed().as_millis() as u64);
                bar.set_message(format!("{} kills", self.counts.kills));
            }
            self.end_round()?;
        }
        Ok(())
    }

    fn start(&mut self, number: usize) -> Result<Process, Failure> {
        let segment = self.segment.as_fd().map_err(|why| why.to_string())?;
        self.witness.started.fetch_add(1, Relaxed);
        let seed = self.random.u64(..);
        let cpus = self.plan.cpus_of(number);
        Process::start(number, segment, self.witness_fd.as_fd(), seed, cpus)
            .map_err(|why| format!("worker {number} did not start: {why}"))
    }

    /// Does something to a worker, or looks at what can be seen while all work.
    fn disturb(&mut self) -> Result<(), Failure> {
        let number = self.random.usize(..self.workers.len());
        match self.random.u32(..10) {
            0..3 => {
                self.stop(number)?;
                thread::sleep(Duration::from_micros(self.random.u64(..10_000)));
                self.workers[number].go_on();
                self.counts.stops += 1;
                Ok(())
            }
            3..8 => {
                self.kill(number)?;
                self.workers[number] = self.start(number)?;
                Ok(())
            }
            _ => {
                self.counts.audits += 1;
                self.audit.while_all_work().map_err(|it| it.to_string())
            }
        }
    }

    /// Stops a worker, and compares its counter with its statement.
    fn stop(&mut self, number: usize) -> Result<(), Failure> {
        let ended = |Ended(status)| {
            format!("worker {number} ended without being killed, status {status:#x}")
        };
        self.workers[number].stop().map_err(ended)?;
        self.audit.while_stopped(number).map_err(|it| format!("worker {number}: {it}"))
    }

    /// Kills a worker, after it has been taken out of the witness.
    fn kill(&mut self, number: usize) -> Result<(), Failure> {
        self.stop(number)?;
        self.witness.forget(number);
        self.workers[number].kill();
        self.counts.kills += 1;
        self.audit.bury(number).map_err(|it| format!("worker {number}: {it}"))
    }

    /// Kills all workers, and checks that nothing is missing.
    fn end_round(&mut self) -> Result<(), Failure> {
        (0..self.workers.len()).try_for_each(|number| self.kill(number))?;
        self.workers.clear();
        process::wait_for_orphans();
        let returned = self.audit.when_all_have_ended().map_err(|it| it.to_string())?;
        self.counts.longest_return = self.counts.longest_return.max(returned);
        self.counts.rounds += 1;
        Ok(())
    }
}
