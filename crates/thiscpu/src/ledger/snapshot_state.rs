//! How far a snapshot of all accounts has come.

use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
    fence as memory_fence,
};

/// The report under way: where its notes are, and in bit 0 whether its instant has passed.
pub(super) struct SnapshotState(AtomicUsize);

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stage(pub(super) usize);

pub(super) const NONE: Stage = Stage(0);
pub(super) const INSTANT_PASSED: usize = 1;

impl SnapshotState {
    pub(super) const fn new() -> SnapshotState {
        SnapshotState(AtomicUsize::new(NONE.0))
    }

    /// Acquire: pairs with the Release in `advance`. Who takes an account's lock after another who found the report
    /// further finds it that far. And so does who has charged an account in its lane, by a key that was released
    /// when the instant had passed: the section's load is relaxed, and the fence pairs with the Release of that key. (If
    /// that was another thread, which then told this one: on these processors what it saw is there for all.)
    pub(super) fn stage(&self) -> Stage {
        memory_fence(Acquire);
        Stage(self.0.load(Acquire))
    }

    pub(super) fn advance(&self, to: Stage) {
        self.0.store(to.0, Release);
    }

    /// In a child that was forked amid a report.
    pub(super) fn abandon(&self) {
        self.advance(NONE);
    }
}

impl Stage {
    pub(super) fn is_before_instant(self) -> bool {
        self != NONE && self.0 & INSTANT_PASSED == 0
    }
}
