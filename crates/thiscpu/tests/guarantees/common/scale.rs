//! The number of rounds and the deadlines, scaled for slow machines and quick runs.
//!
//! A quick run has one environment for each scenario, a sixteenth of the rounds, fewer stops of
//! single-stepped operations, and no slow scenarios.

use std::time::{Duration, Instant};

pub(crate) use thiscpu_test_support::{is_quick, slowdown as factor};

/// The longest wait for an event that usually comes within a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns how often to repeat what full runs on usual machines repeat `usual` times.
pub(crate) fn rounds(usual: u64) -> u64 {
    usual.div_ceil(u64::from(factor()) * if is_quick() { 16 } else { 1 })
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
