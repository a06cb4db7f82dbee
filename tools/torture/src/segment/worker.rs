//! A worker process: random operations on all objects, until it is killed.

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use fastrand::Rng;
use thiscpu::{Segment, SharedAcquireError};
use thiscpu_test_support::tool::output::{FAILED, complain};
use thiscpu_test_support::{child, cpus};

use super::objects::{LIMIT, Objects, WAIT_MAX};
use super::plan::Orders;
use super::witness::{Statement, Witness};
use crate::violation::{Checked, Violation, holds, within};

struct Worker {
    number: usize,
    /// The orders of this process, until it closes the descriptors.
    orders: Option<Orders>,
    objects: Objects,
    witness: &'static Witness,
    random: Rng,
    /// The CPUs of this process when it began.
    cpus: Vec<usize>,
    /// The common counter only grows.
    common_seen: i64,
}

/// Works until this process is killed, or a check fails.
pub(crate) fn work(orders: &Orders) -> ExitCode {
    let failed =
        |why: &dyn std::fmt::Display| complain(&format!("worker {}: {why}", orders.number), FAILED);
    let witness = match Witness::attach(orders.witness) {
        Ok(witness) => witness,
        Err(why) => return failed(&why),
    };
    // SAFETY: the auditor has passed the descriptor on, and nothing else in this process uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(orders.segment) };
    let objects = match Segment::from_fd(fd).and_then(|segment| Objects::of(&segment)) {
        Ok(objects) => objects,
        Err(why) => return failed(&why),
    };
    let (number, random) = (orders.number, Rng::with_seed(orders.seed));
    let cpus = cpus::allowed();
    let orders = Some(*orders);
    let mut worker = Worker { number, orders, objects, witness, random, cpus, common_seen: 0 };
    loop {
        if let Err(violation) = worker.step() {
            return failed(&violation);
        }
    }
}

impl Worker {
    fn statement(&self) -> &'static Statement {
        &self.witness.statements[self.number]
    }

    /// Does one random operation.
    fn step(&mut self) -> Checked {
        self.statement().operations.fetch_add(1, Relaxed);
        match self.random.u32(..1000) {
            0..250 => self.add_own(),
            250..450 => self.add_common(),
            450..550 => self.take_steps(),
            550..600 => return self.look(),
            600..850 => return self.try_acquire(),
            850..940 => return self.acquire(),
            940..960 => return self.hold_lease(),
            960..990 => self.move_to_cpu(),
            990..997 => return self.fork(),
            997 => self.close_descriptors(),
            998 => return self.execute(),
            _ => self.objects.budget.set_limit(LIMIT - self.random.u64(..LIMIT / 2)),
        }
        Ok(())
    }

    /// Returns a small amount, or at times one of up to so many bits.
    fn amount(&mut self, bits: u32) -> i64 {
        match self.random.u32(..4) {
            0 => self.random.i64(1 << 15..1 << bits),
            _ => self.random.i64(1..1000),
        }
    }

    fn add_own(&mut self) {
        let statement = self.statement();
        let n = if self.random.bool() { self.amount(40) } else { -self.amount(40) };
        let after = statement.before.load(SeqCst).wrapping_add(n);
        statement.after.store(after, SeqCst);
        self.objects.own.add(self.number, n);
        statement.before.store(after, SeqCst);
    }

    fn add_common(&mut self) {
        // With larger amounts the sum would overflow in the longest runs.
        let (statement, n) = (self.statement(), self.amount(30));
        statement.begun.fetch_add(n, SeqCst);
        self.objects.common.add(n);
        statement.ended.fetch_add(n, SeqCst);
    }

    fn take_steps(&mut self) {
        self.objects.steps.add(0, 1);
        self.objects.steps.add(1, 1);
    }

    /// Sums what has an answer that can be checked while others work.
    fn look(&mut self) -> Checked {
        let sum = self.objects.common.sum();
        within("common counter, which only grows", (self.common_seen, i64::MAX), sum)?;
        self.common_seen = sum;
        let [first, second] = self.objects.steps.sum();
        // Each worker that was ever killed can have left one between its two steps.
        let between = self.witness.started.load(SeqCst) as i64;
        within("workers between two steps", (0, between), first - second)
    }

    /// Holds units for a moment, and gives them back.
    fn hold(&mut self, units: u64) -> Checked {
        self.witness.hold(self.number, units, LIMIT)?;
        for _ in 0..self.random.u32(..200) {
            std::hint::spin_loop();
        }
        self.witness.give_back(self.number, units);
        Ok(())
    }

    fn try_acquire(&mut self) -> Checked {
        let units = self.random.u64(1..=12);
        match self.objects.budget.try_acquire(units) {
            Ok(()) => {
                let result = self.hold(units);
                self.objects.budget.release(units);
                result
            }
            Err(why) => {
                self.statement().refusals.fetch_add(1, Relaxed);
                holds("a refusal for want of units", is_exhausted(&why))?;
                within("units available to a refused call", (0, units as i64 - 1), available(&why))
            }
        }
    }

    fn acquire(&mut self) -> Checked {
        let units = self.random.u64(1..=12);
        let patience = match self.random.bool() {
            // Such waits are canceled in all their parts.
            true => Duration::from_micros(self.random.u64(..2000)),
            false => WAIT_MAX,
        };
        let began = Instant::now();
        let result = self.objects.budget.acquire_timeout(units, patience);
        let statement = self.statement();
        statement.waits.fetch_add(1, Relaxed);
        statement.longest_wait.fetch_max(began.elapsed().as_micros() as u64, Relaxed);
        match result {
            Ok(()) => {
                let result = self.hold(units);
                self.objects.budget.release(units);
                result
            }
            Err(why) => {
                holds("a wait that ends for want of units", is_exhausted(&why))?;
                holds("units come before the last deadline", patience < WAIT_MAX)
            }
        }
    }

    fn hold_lease(&mut self) -> Checked {
        let budget = self.objects.budget.clone();
        match budget.try_acquire_owned(3) {
            Ok(_lease) => self.hold(3),
            Err(_) => Ok(()),
        }
    }

    fn move_to_cpu(&mut self) {
        let to = self.random.usize(..self.cpus.len());
        cpus::confine(0, [self.cpus[to]]);
    }

    /// Forks a child that uses the objects too, and ends in some way.
    fn fork(&mut self) -> Checked {
        let (units, is_killed) = (self.random.u64(1..=6), self.random.bool());
        let budget = self.objects.budget.clone();
        let lease = budget.try_acquire_owned(1).ok();
        let pid = child::start(|| {
            die_with_parent();
            // The child holds nothing yet: the parent's lease does nothing in it.
            drop(lease);
            if self.objects.budget.try_acquire(units).is_ok() {
                if is_killed {
                    // SAFETY: ends this process, as others do from outside.
                    unsafe { libc::raise(libc::SIGKILL) };
                }
                self.objects.budget.release(units);
            }
        });
        let status = child::wait(pid);
        let has_ended = status == 0 || libc::WIFSIGNALED(status);
        if has_ended { Ok(()) } else { Err(Violation::PANIC) }
    }

    /// Closes all descriptors but the standard ones, as daemons do.
    fn close_descriptors(&mut self) {
        self.orders = None;
        // SAFETY: closes numbers; what this process still uses of them must notice.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    }

    /// Starts the program of this process again, which then holds nothing.
    fn execute(&mut self) -> Checked {
        let Some(orders) = self.orders.filter(Orders::pass_on_descriptors) else { return Ok(()) };
        // These units must come back, though the process lives on. The witness does not have them.
        let _ = self.objects.budget.try_acquire(self.random.u64(1..=12));
        self.witness.executed.fetch_add(1, Relaxed);
        let seed = self.random.u64(..);
        let why = Orders { seed, ..orders }.command().exec();
        complain(&format!("worker {}: cannot start again: {why}", self.number), FAILED);
        Err(Violation::PANIC)
    }
}

fn is_exhausted(why: &SharedAcquireError) -> bool {
    matches!(why, SharedAcquireError::Exhausted { .. })
}

fn available(why: &SharedAcquireError) -> i64 {
    match why {
        SharedAcquireError::Exhausted { available } => *available as i64,
        _ => i64::MAX,
    }
}

/// Makes the kernel kill this process when the thread that started it ends.
pub(super) fn die_with_parent() {
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
