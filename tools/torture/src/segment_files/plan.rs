//! The plan of a run with hostile files, as the command line gives it.

use fastrand::Rng;
use thiscpu_test_support::cpus;

use crate::plan::parse_seed;

pub(super) const WORKERS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Plan {
    /// Damage and use N images; 1,000,000 change each byte of the file
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) images: u64,

    /// Keep N processes at work [default: one for each CPU]
    #[arg(long, value_name = "N", default_value_t = default_processes(), hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=WORKERS_MAX as u64))]
    processes: u64,

    /// Start the random numbers at X, such as 7 or 0x7 [default: another seed each time]
    #[arg(long, value_name = "X", default_value_t = fastrand::u32(..).into())]
    #[arg(value_parser = parse_seed, allow_negative_numbers = true, hide_default_value = true)]
    pub(crate) seed: u64,
}

fn default_processes() -> u64 {
    cpus::allowed().len().clamp(1, WORKERS_MAX) as u64
}

impl Plan {
    pub(super) fn processes(&self) -> u64 {
        self.processes
    }

    pub(super) fn random(&self) -> Rng {
        Rng::with_seed(self.seed)
    }
}
