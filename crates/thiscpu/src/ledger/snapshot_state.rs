//! The progress of a snapshot of all accounts.

use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
    fence as memory_fence,
};

/// The snapshot in progress: the captures' address, and in bit 0 if the instant has passed.
#[derive(Default)]
pub(super) struct SnapshotState(AtomicUsize);

/// A stage of the snapshot: the word of a `SnapshotState`, as loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stage(pub(super) usize);

pub(super) const NONE: Stage = Stage(0);
pub(super) const INSTANT_PASSED: usize = 1;

impl SnapshotState {
    /// Loads the stage.
    ///
    /// Acquire: pairs with the Release in `advance`. A thread that takes an account's lock after
    /// one that found a later stage finds at least that stage.
    ///
    /// A thread that has charged an account in its lane, by a key released after the instant, also
    /// finds that the instant has passed. The section's load is relaxed, so the fence here pairs
    /// with the Release of that key. If another thread made that charge and told this one, the
    /// architectures make visible here what the other thread saw.
    pub(super) fn stage(&self) -> Stage {
        memory_fence(Acquire);
        Stage(self.0.load(Acquire))
    }

    pub(super) fn advance(&self, to: Stage) {
        self.0.store(to.0, Release);
    }
}

impl Stage {
    pub(super) fn is_before_instant(self) -> bool {
        self != NONE && self.0 & INSTANT_PASSED == 0
    }
}
