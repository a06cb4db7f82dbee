//! Each thread's countdown to its next sample point.
//!
//! The countdown is a word of the thread's static TLS, so threads share nothing. It is 0 in a new
//! thread, which then draws before its first block counts. A thread that ends with a countdown
//! loses nothing: the distances have no memory.
//!
//! A second word is the interval by which the distance was drawn. Once the interval changes, the
//! thread draws again, so that each sample has the weight of the interval that led to it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiscpu::__internal::sample_left;

use super::weight::{INTERVAL_MAX, INTERVAL_MIN, draw, units};

/// The mean distance between two sample points, in bytes.
pub static INTERVAL: AtomicU64 = AtomicU64::new(super::DEFAULT_INTERVAL);

/// Sets the interval, from each thread's next block on.
pub(super) fn set_interval(interval: u64) {
    // Relaxed: a thread that draws a moment later may use either.
    INTERVAL.store(interval.clamp(INTERVAL_MIN, INTERVAL_MAX), Relaxed);
    sample_left()[0].store(0, Relaxed);
}

/// Returns the interval by which this thread's last sample was chosen.
pub(super) fn interval_of_sample() -> u64 {
    // Relaxed: only this thread uses the word.
    sample_left()[1].load(Relaxed) as u64
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
    let [word, drawn_by] = sample_left();
    let is_valid = drawn_by.load(Relaxed) == interval() as i64;
    let before = if is_valid { word.load(Relaxed) } else { 0 };
    let left = before.wrapping_sub(units(size));
    word.store(left, Relaxed);
    left <= 0 && restart(before, size)
}

/// Draws the next distance; returns whether the block of `size` bytes is sampled.
#[cold]
#[inline(never)]
fn restart(before: i64, size: usize) -> bool {
    let [word, drawn_by] = sample_left();
    let interval = interval();
    drawn_by.store(interval as i64, Relaxed);
    if before == 0 {
        // The thread's first block with this interval has not been counted against a distance.
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
