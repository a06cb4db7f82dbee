//! How much the tests do.

use std::sync::OnceLock;

/// How much the tests do, as `THISCPU_TEST_LEVEL` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `quick`: no slow tests, no programs in C, and few rounds.
    Quick,
    /// The variable is not set: all tests, with samples of long walks and a part of the rounds.
    Usual,
    /// `full`: everything, as `.ci/run` and `cargo xtask mutants` ask for it.
    Full,
}

/// Returns how much the tests do.
///
/// # Panics
///
/// If `THISCPU_TEST_LEVEL` is set and names no level.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| match std::env::var("THISCPU_TEST_LEVEL").as_deref() {
        Err(_) | Ok("") => Level::Usual,
        Ok("quick") => Level::Quick,
        Ok("full") => Level::Full,
        Ok(other) => panic!("invalid THISCPU_TEST_LEVEL={other:?}: set it to quick or full"),
    })
}

/// Returns whether tests leave out slow parts, and programs in C.
pub fn is_quick() -> bool {
    level() == Level::Quick
}

/// Returns whether tests leave out nothing.
pub fn is_full() -> bool {
    level() == Level::Full
}
