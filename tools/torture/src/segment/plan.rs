//! The plan of a run with processes, as the command line gives it.

use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use thiscpu_test_support::cpus;

use super::witness::WORKERS_MAX;
use crate::plan::{parse_seconds, parse_seed};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Plan {
    /// Run for S seconds
    #[arg(long = "seconds", value_name = "S", default_value = "10")]
    #[arg(value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(super) duration: Duration,

    /// End after N kills, if that comes first
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pub(super) kills: u64,

    /// Keep N processes at work
    #[arg(long, value_name = "N", default_value_t = 6)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=WORKERS_MAX as u64))]
    processes: u64,

    /// Give workers with odd numbers one half of the CPUs, and the others the other half
    #[arg(long)]
    split_cpus: bool,

    /// Start the random numbers at X, such as 7 or 0x7 [default: another seed each time]
    #[arg(long, value_name = "X", default_value_t = fastrand::u32(..).into())]
    #[arg(value_parser = parse_seed, allow_negative_numbers = true, hide_default_value = true)]
    pub(crate) seed: u64,
}

impl Plan {
    pub(super) fn processes(&self) -> usize {
        self.processes as usize
    }

    /// Returns the CPUs of a worker; none if it may use all.
    pub(super) fn cpus_of(&self, worker: usize) -> Vec<usize> {
        let all = if self.split_cpus { cpus::allowed() } else { Vec::new() };
        let (first, second) = all.split_at(all.len() / 2);
        if worker.is_multiple_of(2) { second } else { first }.to_vec()
    }

    pub(super) fn random(&self) -> Rng {
        Rng::with_seed(self.seed)
    }
}

/// What a worker process is told on its command line.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Orders {
    /// The descriptor of the segment
    #[arg(long)]
    pub(super) segment: i32,

    /// The descriptor of the memory in which workers say what they do
    #[arg(long)]
    pub(super) witness: i32,

    /// The number of this worker
    #[arg(long)]
    pub(super) number: usize,

    #[arg(long)]
    pub(super) seed: u64,
}

impl Orders {
    /// Returns the command that starts this program as a worker with these orders.
    pub(super) fn command(&self) -> Command {
        let Orders { segment, witness, number, seed } = self;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("segment-worker")
            .args(["--segment", &segment.to_string(), "--witness", &witness.to_string()])
            .args(["--number", &number.to_string(), "--seed", &seed.to_string()]);
        command
    }

    /// Lets the next program of this process have both descriptors.
    ///
    /// Returns whether they are open.
    pub(super) fn pass_on_descriptors(&self) -> bool {
        [self.segment, self.witness].into_iter().all(|fd| {
            // SAFETY: clears a flag of a descriptor of this process.
            unsafe { libc::fcntl(fd, libc::F_SETFD, 0) == 0 }
        })
    }
}
