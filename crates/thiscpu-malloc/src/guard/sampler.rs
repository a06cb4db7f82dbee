//! Chooses the calls that get a guarded block: about one in [`INTERVAL`].
//!
//! Each CPU counts down on its own. Only calls that miss their lane count, and each stands for as
//! many as a sheaf holds. The countdown starts at a random number between 1 and twice the interval,
//! so a program that allocates the same sequence over and over has all parts of it sampled.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use thiscpu::PerCpu;

use crate::random;

// Relaxed, for both: tests set them before they count on them.

/// One call in this many is sampled.
static INTERVAL: AtomicU32 = AtomicU32::new(1_000);
/// Whether the throttle is ignored, for tests.
static IS_UNTHROTTLED: AtomicBool = AtomicBool::new(false);

/// The number of calls until the next sample, on each CPU.
static REMAINING: OnceLock<PerCpu<u32>> = OnceLock::new();

/// Allocates the countdowns. Returns whether they are there.
pub(super) fn init() -> bool {
    REMAINING.get().is_some()
        || PerCpu::try_new()
            .is_ok_and(|remaining| REMAINING.set(remaining).is_ok() || REMAINING.get().is_some())
}

/// Samples one call in `interval` from now on, however long that takes.
pub(crate) fn sample_every(interval: u32) {
    INTERVAL.store(interval, Relaxed);
    IS_UNTHROTTLED.store(true, Relaxed);
}

/// Returns whether the throttle is ignored.
pub(super) fn is_unthrottled() -> bool {
    IS_UNTHROTTLED.load(Relaxed)
}

/// Returns whether to sample a call that stands for `calls`. Never does before `init`.
///
/// Costs one section, is wait-free, and may be called from anywhere.
#[inline]
pub fn sample(calls: usize) -> bool {
    let Some(remaining) = REMAINING.get() else { return false };
    let calls = calls as u32;
    // The word holds a signed number.
    let value = remaining.add_return(calls.wrapping_neg()) as i32;
    value <= 0 && restart(remaining, value, calls)
}

/// Starts the next countdown, and returns whether this call ended the last one.
///
/// Several threads may get here at once, but only one of them ended it. None of them did on a CPU
/// that had no countdown yet.
#[cold]
fn restart(remaining: &PerCpu<u32>, value: i32, calls: u32) -> bool {
    let interval = INTERVAL.load(Relaxed) as usize;
    let drawn = 1 + random::below(2 * interval - 1) as i32;
    // If one call stands for more than the interval, the next call is sampled too.
    remaining.add(drawn.max(1 - value) as u32);
    value + calls as i32 > 0
}
