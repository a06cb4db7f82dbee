//! The number of rounds and the deadlines, scaled for slow machines and quick runs.

use std::sync::OnceLock;

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

/// Returns whether `THISCPU_TEST_QUICK=1` asks for a quick run.
///
/// Such a run has one environment for each scenario, an eighth of the rounds, and skips slow
/// scenarios.
pub(crate) fn is_quick() -> bool {
    match std::env::var("THISCPU_TEST_QUICK").as_deref() {
        Err(_) | Ok("" | "0") => false,
        Ok("1") => true,
        Ok(other) => panic!("invalid THISCPU_TEST_QUICK={other:?}: set it to 1, or unset it"),
    }
}

/// Returns how often to repeat what full runs on usual machines repeat `usual` times.
pub(crate) fn rounds(usual: u64) -> u64 {
    usual.div_ceil(u64::from(factor()) * if is_quick() { 8 } else { 1 })
}
