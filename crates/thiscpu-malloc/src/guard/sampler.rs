//! Which calls are sampled: about one in [`INTERVAL`], each CPU counting down on its own.
//!
//! How far down is drawn anew each time, between 1 and twice the interval, so that a program which allocates the same
//! things in turn has all of them sampled.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use thiscpu::PerCpu;

use super::random;

/// One in how many calls is sampled. With 1 it is every call, for tests.
static INTERVAL: AtomicU32 = AtomicU32::new(2_000);

/// How many calls are left on each CPU.
static LEFT: OnceLock<PerCpu<u32>> = OnceLock::new();

/// Prepares the countdown; whether that worked.
pub(super) fn init() -> bool {
    LEFT.get().is_some()
        || PerCpu::try_new().is_ok_and(|left| LEFT.set(left).is_ok() || LEFT.get().is_some())
}

/// Has every call sampled from now on.
pub fn sample_every_call() {
    INTERVAL.store(1, Relaxed);
}

/// Whether every call is.
pub(super) fn is_every_call() -> bool {
    INTERVAL.load(Relaxed) == 1
}

/// Whether this call is to be sampled; never before `init`. One section, wait-free; may be called from anywhere.
#[inline]
pub fn sample() -> bool {
    match LEFT.get() {
        None => false,
        // A word holds a signed number.
        Some(left) => match left.add_return(u32::MAX) as i32 {
            1.. => is_every_call(),
            reached => begin_again(left, reached),
        },
    }
}

/// Draws the next countdown. Several threads may come here at once, and then one of them has reached 0; so has none on a CPU
/// whose countdown has not begun.
#[cold]
fn begin_again(left: &PerCpu<u32>, reached: i32) -> bool {
    let interval = INTERVAL.load(Relaxed);
    left.add(1 + random::below(2 * interval as usize - 1) as u32);
    reached == 0 || interval == 1
}
