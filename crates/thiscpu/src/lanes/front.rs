//! A table from the kernel's index straight to the item of one object: that which has the most calls, malloc's classes.
//!
//! Sections of others load two things, one after the other: where the lane is, and their gate, which they add to it. Here both are one load, of
//! where the item's first top is in that lane, or 0 while the gate is closed. So whoever closes the gate has to [hide](Front::hide) all of them too
//! before the fence; and it is on slow paths that they are shown again, by each CPU for itself.

use super::table;
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use crate::sys::topology::CPUS_MAX;

/// The table.
pub static FRONT: Front =
    Front { _before: 0, items: [const { AtomicUsize::new(0) }; 1 << 16], end: AtomicUsize::new(0) };

/// One for each 16-bit number, as in the lane table: a section needs no check of its range. The first ones are at no multiple of 64, as there.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Front {
    _before: usize,
    items: [AtomicUsize; 1 << 16],
    /// No index from here on was ever shown anything.
    end: AtomicUsize,
}

/// Where the items begin.
#[cfg(not(thiscpu_model))]
pub const ITEMS: usize = core::mem::offset_of!(Front, items);

impl Front {
    #[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
    pub(crate) const fn as_ptr(&self) -> *const AtomicUsize {
        self.items.as_ptr()
    }

    #[cfg(thiscpu_model)]
    pub(crate) fn item(&self, index: usize) -> &AtomicUsize {
        &self.items[index]
    }

    /// Whether that index finds the item.
    pub(crate) fn is_shown(&self, index: usize) -> bool {
        self.items.get(index).is_some_and(|item| item.load(Relaxed) != 0)
    }

    /// Lets that index find what is at `item` in lane 0 in its own lane, if it has one. Under the lock of the item's gate, which is open.
    pub(crate) fn show(&self, index: usize, item: usize) {
        let entry = table::entry(index);
        if entry == 0 || index >= CPUS_MAX {
            return;
        }
        // First: who hides them all looks at no more. A child that is forked in between hides one that was never shown.
        self.end.store(self.end.load(Relaxed).max(index + 1), Relaxed);
        // SeqCst: as the store that opens a gate.
        self.items[index].store(item + table::distance_of(entry), SeqCst);
    }

    /// Lets nobody find it. Sections that have begun before may still; a fence is to follow. Under the same lock, which orders the others.
    pub(crate) fn hide(&self) {
        for item in &self.items[..self.end.load(Acquire)] {
            // SeqCst: as the store that closes a gate. Sections load it after they have begun.
            item.store(0, SeqCst);
        }
    }
}
