//! Each thread's countdown to its next sample point.
//!
//! The countdown is a word of the thread's static TLS, so threads share nothing. It is 0 in a new
//! thread, which then draws before its first block counts. A thread that ends with a countdown
//! loses nothing: the distances have no memory.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiscpu::__internal::sample_left;

use super::weight::{INTERVAL_MAX, INTERVAL_MIN, draw, units};

/// The mean distance between two sample points, in bytes.
static INTERVAL: AtomicU64 = AtomicU64::new(super::DEFAULT_INTERVAL);

/// Sets the interval, from this thread's next block and from other threads' next sample on.
pub(super) fn set_interval(interval: u64) {
    // Relaxed: a thread that draws a moment later may use either.
    INTERVAL.store(interval.clamp(INTERVAL_MIN, INTERVAL_MAX), Relaxed);
    sample_left().store(0, Relaxed);
}

/// Returns the mean distance between two sample points, in bytes.
pub(super) fn interval() -> u64 {
    INTERVAL.load(Relaxed)
}

/// Counts a block of `size` bytes, and returns whether it is sampled.
///
/// A handler that allocates in between may lose this count; handlers must not allocate.
#[inline(always)]
pub(super) fn count(size: usize) -> bool {
    // Relaxed: only this thread uses the word.
    let word = sample_left();
    let before = word.load(Relaxed);
    let left = before.wrapping_sub(units(size));
    word.store(left, Relaxed);
    left <= 0 && restart(before, size)
}

/// Draws the next distance; returns whether the block of `size` bytes is sampled.
#[cold]
#[inline(never)]
fn restart(before: i64, size: usize) -> bool {
    let word = sample_left();
    let interval = interval();
    if before == 0 {
        // This is the thread's first block, which has not been counted against a distance.
        let left = draw(interval).saturating_sub(units(size));
        if left > 0 {
            word.store(left, Relaxed);
            return false;
        }
    }
    // The units behind the point are not carried over: the block is sampled already, and the
    // distance from its end to the next point has the same distribution as any.
    word.store(draw(interval), Relaxed);
    true
}
