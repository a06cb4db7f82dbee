//! The number of rounds and the deadlines, scaled for slow machines and quick runs.
//!
//! A quick run has one environment for each scenario, a sixteenth of the rounds, fewer stops of
//! single-stepped operations, and no slow scenarios.

use std::sync::OnceLock;

pub(crate) use thiscpu_test_support::is_quick;

/// Returns `THISCPU_TEST_SLOWDOWN`, or 1: how many times slower this machine is than usual.
///
/// Emulated machines and programs under valgrind set it. Deadlines are multiplied by it, and
/// numbers of rounds divided.
pub(crate) fn factor() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| match std::env::var("THISCPU_TEST_SLOWDOWN") {
        Err(_) => 1,
        Ok(text) => match text.parse() {
            Ok(factor @ 1..) => factor,
            _ => panic!("invalid THISCPU_TEST_SLOWDOWN={text:?}: set it to a number from 1"),
        },
    })
}

/// Returns how often to repeat what full runs on usual machines repeat `usual` times.
pub(crate) fn rounds(usual: u64) -> u64 {
    usual.div_ceil(u64::from(factor()) * if is_quick() { 16 } else { 1 })
}
