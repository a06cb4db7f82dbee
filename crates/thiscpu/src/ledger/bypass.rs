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
const WATCHED: i32 = if cfg!(thiscpu_model) { 1 } else { 32 };
/// How many of them must hit for a look to pay: with three of four, one in four guesses is wrong.
const HITS_MIN: i32 = if cfg!(thiscpu_model) { 1 } else { 24 };
/// How many charges bypass the lane before the next are watched; about a millisecond.
pub(super) const BYPASSED: i32 = if cfg!(thiscpu_model) { 2 } else { 65_536 };

/// What a thread's next charge is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Looks,
    /// As so many charges do, with this one.
    Bypasses(i32),
    Watches,
}

#[derive(Default)]
struct Habit {
    /// How many charges are to bypass the lane; less than 0 if so many are to be watched. One word, so that a charge loads
    /// it once and stores it once.
    left: Cell<i32>,
    hits: Cell<i32>,
}

#[cfg(not(thiscpu_model))]
thread_local! {
    static HABIT: Habit =
        const { Habit { left: Cell::new(0), hits: Cell::new(0) } };
}

#[inline(always)]
fn with_habit<R>(what: impl FnOnce(&Habit) -> R) -> R {
    #[cfg(thiscpu_model)]
    return what(&crate::model::local());
    #[cfg(not(thiscpu_model))]
    HABIT.with(what)
}

/// This thread's mode.
#[inline(always)]
pub(super) fn mode() -> Mode {
    match with_habit(|habit| habit.left.get()) {
        0 => Mode::Looks,
        left @ 1.. => Mode::Bypasses(left),
        _ => Mode::Watches,
    }
}

impl Habit {
    fn change(&self, left: i32) {
        self.left.set(left);
        self.hits.set(0);
        // Inlined charges of C come here, as others do, when this is not 0.
        rseq::set_habit(left == 0);
    }
}

/// A charge has bypassed the lane, with so many left before it; whether it was the last one, and the next are watched. Asked
/// after it, so that its addition need not wait for the answer: the processor begins an atomic instruction when it is sure
/// that it will be reached.
#[inline(always)]
pub(super) fn bypassed(left: i32) -> bool {
    with_habit(|habit| habit.left.set(left - 1));
    left == 1
}

/// Begins to watch.
pub(super) fn watch() {
    with_habit(|habit| habit.change(-WATCHED));
}

/// There are no lanes to look into. For the next 2^31 charges, that is.
pub(super) fn always() {
    with_habit(|habit| habit.change(i32::MAX));
}

/// The charge that is watched, if one is, misses and should not count as one that does.
pub(super) fn excused() {
    with_habit(|habit| {
        if habit.left.get() < 0 {
            habit.hits.set(habit.hits.get() + 1);
        }
    });
}

/// What a charge that was watched came to.
pub(super) fn watched(is_hit: bool) {
    with_habit(|habit| {
        // In the atomic tier it does not watch any more.
        if habit.left.get() >= 0 {
            return;
        }
        habit.hits.set(habit.hits.get() + i32::from(is_hit));
        habit.left.set(habit.left.get() + 1);
        if habit.left.get() == 0 {
            habit.change(if habit.hits.get() < HITS_MIN { BYPASSED } else { 0 });
        }
    });
}
