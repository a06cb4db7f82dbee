//! Whether a thread's charges try its lane at all.
//!
//! A failed attempt costs a branch misprediction, and additions to different accounts overlap well.
//! So attempts that fail as often as not cost more than they save. After repeated misses a thread
//! *samples* a few charges. If too few of them hit, it adds to accounts directly for a while, as if
//! there were no cache, and then samples again.
//!
//! The state is per thread, because whether a thread serves few accounts or many depends on the
//! stream of its requests.

use core::cell::Cell;

use crate::sys::rseq;

const SAMPLES: i32 = if cfg!(thiscpu_model) { 1 } else { 32 };
/// The hits in a sample that make attempts worth while; the others are mispredicted.
const HITS_MIN: i32 = if cfg!(thiscpu_model) { 1 } else { 24 };
/// The number of charges that bypass the lane between two samples; about a millisecond.
pub(super) const BYPASS_CALLS: i32 = if cfg!(thiscpu_model) { 2 } else { 65_536 };

/// The way in which a thread's next charge proceeds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Cached,
    /// This charge bypasses the lane; the number includes it and those that follow.
    Bypass(i32),
    Sampling,
}

#[derive(Default)]
struct BypassState {
    /// The charges left to bypass the lane, or if negative to sample: one word, loaded once.
    left: Cell<i32>,
    hits: Cell<i32>,
}

#[cfg(not(thiscpu_model))]
thread_local! {
    static BYPASS_STATE: BypassState =
        const { BypassState { left: Cell::new(0), hits: Cell::new(0) } };
}

#[inline(always)]
fn with_state<R>(what: impl FnOnce(&BypassState) -> R) -> R {
    #[cfg(thiscpu_model)]
    return what(&crate::model::local());
    #[cfg(not(thiscpu_model))]
    BYPASS_STATE.with(what)
}

#[inline(always)]
pub(super) fn mode() -> Mode {
    match with_state(|state| state.left.get()) {
        0 => Mode::Cached,
        left @ 1.. => Mode::Bypass(left),
        _ => Mode::Sampling,
    }
}

impl BypassState {
    fn change(&self, left: i32) {
        self.left.set(left);
        self.hits.set(0);
        // Inlined charges of C call into the library if this is set.
        rseq::set_bypass(left != 0);
    }
}

/// Counts a charge that bypassed the lane; returns whether it was the last to do so.
///
/// `left` is the number before this charge. Called after the addition, which then does not wait for
/// the answer: the processor starts an atomic instruction when it is certain to reach it.
#[inline(always)]
pub(super) fn count_bypassed(left: i32) -> bool {
    with_state(|state| state.left.set(left - 1));
    left == 1
}

pub(super) fn start_sampling() {
    with_state(|state| state.change(-SAMPLES));
}

/// Bypasses lanes for the next 2^31 charges, because there are none.
pub(super) fn bypass_forever() {
    with_state(|state| state.change(i32::MAX));
}

/// Makes the next sampled miss count as a hit, because the lane is not to blame for it.
pub(super) fn ignore_miss() {
    with_state(|state| {
        if state.left.get() < 0 {
            state.hits.set(state.hits.get() + 1);
        }
    });
}

/// Records the result of a sampled charge; ends the sample after the last.
pub(super) fn sampled(is_hit: bool) {
    with_state(|state| {
        // In the atomic tier the thread has stopped sampling.
        if state.left.get() >= 0 {
            return;
        }
        state.hits.set(state.hits.get() + i32::from(is_hit));
        state.left.set(state.left.get() + 1);
        if state.left.get() == 0 {
            state.change(if state.hits.get() < HITS_MIN { BYPASS_CALLS } else { 0 });
        }
    });
}
