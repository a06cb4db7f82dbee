//! Which calls are sampled: about one in [`INTERVAL`], each CPU counting down on its own.
//!
//! Only those are asked about that did not find what they wanted in their lane; each stands for as many as a sheaf holds. How far
//! down is drawn anew each time, between 1 and twice the interval, so that a program which allocates the same
//! things in turn has all of them sampled.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use thiscpu::PerCpu;

use super::random;

/// One in how many calls is sampled.
static INTERVAL: AtomicU32 = AtomicU32::new(1_000);

/// Whether that is so whatever time guarding takes, for tests.
static IS_UNTHROTTLED: AtomicBool = AtomicBool::new(false);

/// How many calls are remaining on each CPU.
static REMAINING: OnceLock<PerCpu<u32>> = OnceLock::new();

/// Prepares the countdown; whether that worked.
pub(super) fn init() -> bool {
    REMAINING.get().is_some()
        || PerCpu::try_new()
            .is_ok_and(|remaining| REMAINING.set(remaining).is_ok() || REMAINING.get().is_some())
}

/// Has one in so many calls sampled from now on, whatever time that takes.
pub(crate) fn sample_every(interval: u32) {
    INTERVAL.store(interval, Relaxed);
    IS_UNTHROTTLED.store(true, Relaxed);
}

/// Whether time does not matter.
pub(super) fn is_unthrottled() -> bool {
    IS_UNTHROTTLED.load(Relaxed)
}

/// Whether this call, which stands for `calls`, is to be sampled; never before `init`. One section, wait-free; may be called from
/// anywhere.
#[inline]
pub fn sample(calls: usize) -> bool {
    let Some(remaining) = REMAINING.get() else { return false };
    let calls = calls as u32;
    // A word holds a signed number.
    let value = remaining.add_return(calls.wrapping_neg()) as i32;
    value <= 0 && restart(remaining, value, calls)
}

/// Draws the next countdown. Several threads may come here at once, and then one of them has found something remaining; so has none on
/// a CPU whose countdown has not begun.
#[cold]
fn restart(remaining: &PerCpu<u32>, value: i32, calls: u32) -> bool {
    let interval = INTERVAL.load(Relaxed) as usize;
    let drawn = 1 + random::below(2 * interval - 1) as i32;
    // Where one call stands for more than the interval it is the next one.
    remaining.add(drawn.max(1 - value) as u32);
    value + calls as i32 > 0
}
