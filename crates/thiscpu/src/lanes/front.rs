//! Tables from the kernel's index straight to the item of one object.
//!
//! Sections of others load two things, one after the other: where the lane is, and their gate, which they add to it. Here both are one load, of
//! where the item is in that lane, or 0 while the gate is closed. So whoever closes the gate has to [hide](Front::hide) all of them too
//! before the fence; and it is on slow paths that they are shown again, by each CPU for itself.

use super::table;
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::sys::topology::CPUS_MAX;

/// The front of what has the most calls, malloc's classes: an entry for each 16-bit number, as in the lane table, so that a section needs no check of
/// its range.
pub static FRONT: Front<[AtomicUsize; 1 << 16]> = Front::new();

/// How many entries a cache's own front has. Indices are dense where they are `mm_cid`s, so that only a process that uses more CPUs than this
/// comes to others; what it does on those takes the next way, which asks the gate.
pub(crate) const OWN: usize = if cfg!(thiscpu_model) {
    // Some machines of the model have more.
    2
} else if super::here::HAS_FRONT {
    256
} else {
    0
};

/// A table. The first seven entries are at no multiple of 64, as in the lane table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Front<I: ?Sized = [AtomicUsize]> {
    /// No index from here on was ever shown anything.
    end: AtomicUsize,
    items: I,
}

/// A cache's own.
pub(crate) type OwnFront = Front<[AtomicUsize; OWN]>;

/// Where the items begin.
pub const ITEMS: usize = core::mem::offset_of!(OwnFront, items);

impl<const N: usize> Front<[AtomicUsize; N]> {
    pub(crate) const fn new() -> Self {
        Front { end: AtomicUsize::new(0), items: [const { AtomicUsize::new(0) }; N] }
    }

    #[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
    pub(crate) const fn as_ptr(&self) -> *const AtomicUsize {
        self.items.as_ptr()
    }
}

impl Front {
    #[cfg(thiscpu_model)]
    pub(crate) fn item(&self, index: usize) -> Option<&AtomicUsize> {
        self.items.get(index)
    }

    /// Whether it can be shown to that index.
    pub(crate) fn has(&self, index: usize) -> bool {
        index < self.items.len().min(CPUS_MAX)
    }

    /// Whether that index finds the item.
    pub(crate) fn is_shown(&self, index: usize) -> bool {
        self.items.get(index).is_some_and(|item| item.load(Relaxed) != 0)
    }

    /// Lets that index find what is at `item` in lane 0 in its own lane, if it has one. Under the lock of the item's gate, which is open.
    pub(crate) fn show(&self, index: usize, item: usize) {
        let entry = table::entry(index);
        if entry == 0 || !self.has(index) {
            return;
        }
        // Relaxed: under the lock. First: who hides them all looks at no more. A child that is forked in between hides one that was never shown.
        self.end.store(self.end.load(Relaxed).max(index + 1), Relaxed);
        // SeqCst: as the store that opens a gate.
        self.items[index].store(item + table::distance_of(entry), SeqCst);
    }

    /// Lets nobody find it. Sections that have begun before may still; a fence is to follow. Under the same lock, which orders the others, or by who ends
    /// what nobody else uses.
    pub(crate) fn hide(&self) {
        // Relaxed: as in `show`.
        for item in &self.items[..self.end.load(Relaxed)] {
            // SeqCst: as the store that closes a gate. Sections load it after they have begun.
            item.store(0, SeqCst);
        }
    }
}
