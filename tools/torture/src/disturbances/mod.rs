//! The disturbances of workers, one in each file.
//!
//! A disturbance is a function that runs on a thread of its own until the run is over. To add one,
//! write such a function and start it in `run`.

pub(crate) mod affinity;
pub(crate) mod churn;
pub(crate) mod fork;
pub(crate) mod signals;

use std::time::Duration;

use fastrand::Rng;

/// Sleeps for a random time of less than `micros_max`.
fn rest(random: &mut Rng, micros_max: u64) {
    std::thread::sleep(Duration::from_micros(random.u64(..micros_max)));
}
