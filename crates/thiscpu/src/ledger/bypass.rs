//! Whether a thread's charges look into its lane at all.
//!
//! A look that fails as often as not costs more than it saves: the processor guesses wrong where it goes on, while
//! additions to one account after another overlap. So when lanes have missed again and again, a thread *watches* a few of
//! its charges. If too few of them hit, it adds to accounts directly for a while, as if there was no cache, and
//! then watches again.
//!
//! The habit is a thread's: whether it serves few accounts or many is a property of the stream of its requests.

use core::cell::Cell;

use crate::sys::rseq;

/// How many charges are watched.
const SAMPLES: i32 = if cfg!(thiscpu_model) { 1 } else { 32 };
/// How many of them must hit for a look to pay: with three of four, one in four guesses is wrong.
const HITS_MIN: i32 = if cfg!(thiscpu_model) { 1 } else { 24 };
/// How many charges bypass the lane before the next are watched; about a millisecond.
pub(super) const BYPASS_CALLS: i32 = if cfg!(thiscpu_model) { 2 } else { 65_536 };

/// What a thread's next charge is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Cached,
    /// As so many charges do, with this one.
    Bypass(i32),
    Sampling,
}

#[derive(Default)]
struct BypassState {
    /// How many charges are to bypass the lane; less than 0 if so many are to be watched. One word, so that a charge loads
    /// it once and stores it once.
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

/// This thread's mode.
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
        // Inlined charges of C come here, as others do, when this is not 0.
        rseq::set_bypass(left != 0);
    }
}

/// A charge has bypassed the lane, with so many left before it; whether it was the last one, and the next are watched. Asked
/// after it, so that its addition need not wait for the answer: the processor begins an atomic instruction when it is sure
/// that it will be reached.
#[inline(always)]
pub(super) fn count_bypassed(left: i32) -> bool {
    with_state(|state| state.left.set(left - 1));
    left == 1
}

/// Begins to watch.
pub(super) fn start_sampling() {
    with_state(|state| state.change(-SAMPLES));
}

/// There are no lanes to look into. For the next 2^31 charges, that is.
pub(super) fn bypass_forever() {
    with_state(|state| state.change(i32::MAX));
}

/// The charge that is watched, if one is, misses and should not count as one that does.
pub(super) fn ignore_miss() {
    with_state(|state| {
        if state.left.get() < 0 {
            state.hits.set(state.hits.get() + 1);
        }
    });
}

/// What a charge that was watched came to.
pub(super) fn sampled(is_hit: bool) {
    with_state(|state| {
        // In the atomic tier it does not watch any more.
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
