//! Whether a thread's charges look into its lane at all.
//!
//! A look that fails as often as not costs more than it saves: the processor guesses wrong where it goes on, while
//! additions to one account after another overlap. So when lanes have missed again and again, a thread *watches* a few of
//! its charges. If too few of them hit, it adds to accounts directly for a while, as if there was no cache, and
//! then watches again.
//!
//! The habit is a thread's: whether it serves few accounts or many is a property of the stream of its requests.

use core::cell::Cell;

/// How many charges are watched.
const WATCHED: u32 = 32;
/// How many of them must hit for a look to pay: with three of four, one in four guesses is wrong.
const HITS_MIN: u32 = 24;
/// How many charges bypass the lane before the next are watched; about a millisecond.
pub(super) const BYPASSED: u32 = 65_536;

/// What a thread's next charge is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Looks,
    Bypasses,
    Watches,
}

struct Habit {
    mode: Cell<Mode>,
    /// How many charges are left in this mode, unless it is the first.
    left: Cell<u32>,
    hits: Cell<u32>,
}

thread_local! {
    static HABIT: Habit =
        const { Habit { mode: Cell::new(Mode::Looks), left: Cell::new(0), hits: Cell::new(0) } };
}

/// This thread's mode. The first in models, where no execution may depend on those before.
#[inline(always)]
pub(super) fn mode() -> Mode {
    if cfg!(thiscpu_model) { Mode::Looks } else { HABIT.with(|habit| habit.mode.get()) }
}

impl Habit {
    fn change(&self, mode: Mode, left: u32) {
        self.mode.set(mode);
        self.left.set(left);
        self.hits.set(0);
    }
}

/// A charge has bypassed the lane; whether it was the last one, and the next are watched. Asked after it, so that its
/// addition need not wait for the answer: the processor begins an atomic instruction when it is sure that it will be
/// reached.
#[inline(always)]
pub(super) fn bypassed() -> bool {
    HABIT.with(|habit| {
        let left = habit.left.get().wrapping_sub(1);
        habit.left.set(left);
        left == 0
    })
}

/// Begins to watch.
pub(super) fn watch() {
    HABIT.with(|habit| habit.change(Mode::Watches, WATCHED));
}

/// There are no lanes to look into. For the next 2^32 charges, that is.
pub(super) fn always() {
    if !cfg!(thiscpu_model) {
        HABIT.with(|habit| habit.change(Mode::Bypasses, 0));
    }
}

/// The charge that is watched, if one is, misses and should not count as one that does.
pub(super) fn excused() {
    HABIT.with(|habit| {
        if habit.mode.get() == Mode::Watches {
            habit.hits.set(habit.hits.get() + 1);
        }
    });
}

/// What a charge that was watched came to.
pub(super) fn watched(is_hit: bool) {
    HABIT.with(|habit| {
        // In the atomic tier it does not watch any more.
        if habit.mode.get() != Mode::Watches {
            return;
        }
        habit.hits.set(habit.hits.get() + u32::from(is_hit));
        habit.left.set(habit.left.get() - 1);
        if habit.left.get() > 0 {
            return;
        }
        match habit.hits.get() < HITS_MIN {
            true => habit.change(Mode::Bypasses, BYPASSED),
            false => habit.change(Mode::Looks, 0),
        }
    });
}
