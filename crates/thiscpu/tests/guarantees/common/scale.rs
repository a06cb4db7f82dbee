//! The number of rounds and the deadlines, scaled for slow machines and quick runs.
//!
//! A full run has all rounds and the most stops of single-stepped operations. A usual run has a
//! quarter of the rounds, fewer stops, and one environment for each slow scenario. A quick run has
//! a thirty-second of the rounds, the fewest stops, one environment for each scenario, and leaves
//! out slow ones.

use std::time::{Duration, Instant};

pub(crate) use thiscpu_test_support::{Level, is_quick, level, slowdown as factor};

/// The longest wait for an event that usually comes within a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns how often to repeat what full runs on usual machines repeat `full` times.
pub(crate) fn rounds(full: u64) -> u64 {
    let divisor = match level() {
        Level::Quick => 32,
        Level::Usual => 4,
        Level::Full => 1,
    };
    full.div_ceil(u64::from(factor()) * divisor)
}

/// Waits until a condition holds, and returns false if it takes far too long.
pub(crate) fn soon(what: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !what() {
        if began.elapsed() > PATIENCE * factor() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
