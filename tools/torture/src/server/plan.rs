//! The plan of a server's day, as the command line gives it.

use std::time::Duration;

use fastrand::Rng;

use crate::plan::{parse_seconds, parse_seed};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Plan {
    /// Run for S seconds
    #[arg(long = "seconds", value_name = "S", default_value = "45")]
    #[arg(value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(super) duration: Duration,

    /// Start the random numbers at X, such as 7 or 0x7 [default: another seed each time]
    #[arg(long, value_name = "X", default_value_t = fastrand::u32(..).into())]
    #[arg(value_parser = parse_seed, allow_negative_numbers = true, hide_default_value = true)]
    pub(crate) seed: u64,
}

impl Plan {
    /// Returns the random numbers of a stage.
    pub(super) fn random(&self, stage: usize) -> Rng {
        Rng::with_seed(self.seed ^ (stage as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}
