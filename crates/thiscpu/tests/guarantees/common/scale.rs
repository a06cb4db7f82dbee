//! The number of rounds and the deadlines, scaled for slow machines and quick runs.
//!
//! A quick run has one environment for each scenario, a sixteenth of the rounds, fewer stops of
//! single-stepped operations, and no slow scenarios.

pub(crate) use thiscpu_test_support::{is_quick, slowdown as factor};

/// Returns how often to repeat what full runs on usual machines repeat `usual` times.
pub(crate) fn rounds(usual: u64) -> u64 {
    usual.div_ceil(u64::from(factor()) * if is_quick() { 16 } else { 1 })
}
