//! Direct tables: from the kernel's index straight to the address of one item.
//!
//! Other sections load two words, one after the other: the entry of their lane, and their gate,
//! which they add to it. A direct table replaces both by one load: the item's address in the lane
//! of an index, or 0 while the gate is closed.
//!
//! So a thread that closes the gate must also [clear](DirectTable::clear) the table before its
//! fence. Each CPU publishes the item to its own index again, on its slow path.

use super::table;
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::sys::cpu_set::CPUS_MAX;

/// The direct table of malloc's size classes, which have the most calls.
pub static MALLOC_TABLE: MallocTable = MallocTable {
    _before: [0; 6],
    origin: AtomicUsize::new(NO_ORIGIN),
    key: AtomicUsize::new(0),
    items: DirectTable::new(),
};

/// The direct table of malloc's size classes, behind two words for functions in assembly.
///
/// malloc and free have the address of the first entry in a register. So they load these words by
/// instructions that are three bytes shorter than elsewhere, and from one cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct MallocTable {
    _before: [usize; 6],
    /// The arena's origin for fast frees, or [`NO_ORIGIN`] while there are none.
    pub(crate) origin: AtomicUsize,
    /// The key of malloc's group, from the group's first use on.
    pub(crate) key: AtomicUsize,
    /// The entries: one for each 16-bit number, as the lane table has.
    ///
    /// So a section need not check its index.
    pub(crate) items: DirectTable<[AtomicUsize; 1 << 16]>,
}

/// An origin from which no address has a tag.
///
/// It is not canonical, and far from the values that programs often use for addresses.
pub(crate) const NO_ORIGIN: usize = 0x9e37 << 48;

/// The distance from malloc's table to its first entry, in bytes.
pub const MALLOC_ITEMS_OFFSET: usize = core::mem::offset_of!(MallocTable, items) + ITEMS_OFFSET;
/// The distance from the word with the origin to the first entry.
pub const ORIGIN_TO_ITEMS: usize = MALLOC_ITEMS_OFFSET - core::mem::offset_of!(MallocTable, origin);
/// The distance from the word with the key to the first entry.
pub const KEY_TO_ITEMS: usize = MALLOC_ITEMS_OFFSET - core::mem::offset_of!(MallocTable, key);

/// Whether this target has sections that use direct tables.
pub(crate) const HAS_DIRECT: bool = cfg!(all(target_arch = "x86_64", not(thiscpu_model)));

/// How many entries a cache's own direct table has.
///
/// An `mm_cid` index is dense, so only a process that uses more CPUs than this has larger indices.
/// Sections on those CPUs are refused, and the caller goes on by the gate.
pub(crate) const CACHE_TABLE_LEN: usize = if cfg!(thiscpu_model) {
    // Some modelled machines have more CPUs, so that models cover the refusal.
    2
} else if HAS_DIRECT {
    256
} else {
    0
};

/// A direct table.
///
/// No entry before the eighth is at a multiple of 64 bytes; [`table::Table`] says why.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct DirectTable<I: ?Sized = [AtomicUsize]> {
    /// No index at or above this was ever published.
    end: AtomicUsize,
    items: I,
}

pub(crate) type CacheTable = DirectTable<[AtomicUsize; CACHE_TABLE_LEN]>;

/// The distance from a table to its first entry, in bytes.
pub(crate) const ITEMS_OFFSET: usize = core::mem::offset_of!(CacheTable, items);

impl<const N: usize> DirectTable<[AtomicUsize; N]> {
    pub(crate) const fn new() -> Self {
        DirectTable { end: AtomicUsize::new(0), items: [const { AtomicUsize::new(0) }; N] }
    }

    #[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
    pub(crate) const fn as_ptr(&self) -> *const AtomicUsize {
        self.items.as_ptr()
    }
}

impl DirectTable {
    #[cfg(thiscpu_model)]
    pub(crate) fn item(&self, index: usize) -> Option<&AtomicUsize> {
        self.items.get(index)
    }

    pub(crate) fn covers(&self, index: usize) -> bool {
        index < self.items.len().min(CPUS_MAX)
    }

    /// Returns whether sections with `index` find the item.
    pub(crate) fn is_published(&self, index: usize) -> bool {
        // Relaxed: a hint. If it is old, the section is refused and its slow path asks again.
        self.items.get(index).is_some_and(|item| item.load(Relaxed) != 0)
    }

    /// Publishes the item at `item` in lane 0 to sections with `index`, if the index has a lane.
    ///
    /// The caller holds the lock of the item's gate, which is open.
    pub(crate) fn publish(&self, index: usize, item: usize) {
        let entry = table::entry(index);
        if entry == 0 || !self.covers(index) {
            return;
        }
        // Relaxed: only holders of the lock access `end`. It is stored first, because `clear` looks
        // no further: a child forked between the stores clears an entry that is 0 already.
        self.end.store(self.end.load(Relaxed).max(index + 1), Relaxed);
        // SeqCst, as the store that opens a gate (`Gate::set`), for which this stands.
        self.items[index].store(item + table::distance_of(entry), SeqCst);
    }

    /// Hides the item from all sections that begin after this.
    ///
    /// Sections that began earlier may still find it, so the caller fences next. It holds the lock
    /// of the item's gate, or destroys an object that no other thread uses.
    pub(crate) fn clear(&self) {
        // Relaxed: only holders of the lock access `end`.
        for item in &self.items[..self.end.load(Relaxed)] {
            // SeqCst, as the store that closes a gate (`Gate::set`), for which this stands.
            // Sections load the entry after they have begun; the caller's fence pairs with that.
            item.store(0, SeqCst);
        }
    }
}
