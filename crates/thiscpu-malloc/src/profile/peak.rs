//! The peak: the blocks that were live, by stack, when most bytes were.
//!
//! When a sample makes the live bytes exceed the last peak by a fiftieth, the sums of all stacks
//! are kept. So a program whose memory grows to any size keeps them some hundred times in all.

use core::mem;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use thiscpu::__internal::{self, Lock};

use super::stacks;

// Relaxed, for all of these: estimates, or ordered by the lock.

/// The weighted bytes of sampled blocks in use.
static LIVE: AtomicI64 = AtomicI64::new(0);
/// The live bytes when the sums of all stacks were kept last.
static KEPT: AtomicI64 = AtomicI64::new(0);
/// Taken, if no other thread has it, by the thread that keeps the sums.
static LOCK: Lock = Lock::new();

/// The function to call at peaks, or 0.
static CALLED: AtomicUsize = AtomicUsize::new(0);
/// The live bytes, and the time, when it was called last.
static CALLED_AT: AtomicI64 = AtomicI64::new(0);
static CALLED_NS: AtomicU64 = AtomicU64::new(0);
/// Whether the peak has grown by an eighth since then, within a second.
static CALL_IS_DUE: AtomicBool = AtomicBool::new(false);
const CALL_INTERVAL_NS: u64 = 1_000_000_000;

/// Calls `at_peak` when the peak has grown by an eighth, once a second at most; or nothing.
///
/// After growth within that second, a sample that comes later calls it.
/// The caller of an allocating function calls it, so it must not allocate or free.
pub fn call_at_peaks(at_peak: Option<fn()>) {
    CALLED.store(at_peak.map_or(0, |function| function as usize), Relaxed);
}

/// Returns whether a function is called at peaks.
pub(crate) fn calls_at_peaks() -> bool {
    CALLED.load(Relaxed) != 0
}

/// Counts a block of `bytes` weighted bytes as in use, and keeps the sums at a peak.
pub(super) fn grow(bytes: u64) {
    let live = LIVE.fetch_add(bytes as i64, Relaxed) + bytes as i64;
    let kept = KEPT.load(Relaxed);
    let is_peak = live > kept + kept / 50;
    if !is_peak && !CALL_IS_DUE.load(Relaxed) {
        return;
    }
    if let Some(_guard) = LOCK.try_lock() {
        if is_peak {
            keep(live);
        }
        call_if_due(live);
    }
}

/// Keeps the sums of all stacks as the peak, at which `live` bytes are in use.
fn keep(live: i64) {
    KEPT.store(live, Relaxed);
    stacks::all().for_each(stacks::Entry::keep_peak);
}

/// Calls the function, or has a later sample do so, if the peak has grown by enough.
fn call_if_due(live: i64) {
    let kept = KEPT.load(Relaxed);
    let peak = live.max(kept);
    let (function, last) = (CALLED.load(Relaxed), CALLED_AT.load(Relaxed));
    if function == 0 || peak < last + last / 8 {
        CALL_IS_DUE.store(false, Relaxed);
        return;
    }
    let now = __internal::coarse_time();
    let is_early = now.saturating_sub(CALLED_NS.load(Relaxed)) < CALL_INTERVAL_NS;
    CALL_IS_DUE.store(is_early, Relaxed);
    if !is_early {
        if live > kept {
            keep(live);
        }
        CALLED_AT.store(peak, Relaxed);
        CALLED_NS.store(now, Relaxed);
        // SAFETY: `call_at_peaks` has stored a function of this type.
        unsafe { mem::transmute::<usize, fn()>(function)() };
    }
}

/// Counts a block of `bytes` weighted bytes as freed.
pub(super) fn shrink(bytes: u64) {
    LIVE.fetch_sub(bytes as i64, Relaxed);
}
