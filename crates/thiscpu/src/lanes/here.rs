//! Which lane is this thread's, seen from outside a section.
//!
//! The answer may be old when it arrives: sections look themselves, the atomic tier does not need
//! it to be right, and slow paths check again.

use super::table;
use crate::sys::machine::{Here, Machine as _};
use crate::sys::tier;

/// The entry of this thread's lane, 0 if it has none right now.
pub(crate) fn entry() -> usize {
    tier::chosen().and_then(Here::index).map_or(0, table::entry)
}

/// Tries to give this thread a lane: registers it if that is this library's to do, and takes its
/// index's lane into use. Whether it has one now. Never waits; async-signal-safe.
#[cold]
pub(crate) fn join() -> bool {
    let tier = tier::expect();
    Here::register(tier) && Here::index(tier).is_some_and(table::join)
}
