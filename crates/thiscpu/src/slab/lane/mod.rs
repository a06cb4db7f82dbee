//! Cells: a cache's part of a lane, with one hot object and two sheaves.
//!
//! ```text
//! cell: | hot : 8 | lock : 4, 0 : 4 | top : 8 | spare : 8 |
//! ```
//!
//! An item has one cell for a cache, or a cell for each class of a group, such as malloc's size
//! classes.
//!
//! `hot` is the encoded pointer of an object that was freed while `hot` was 0, or 0. In malloc's
//! classes it is always 0. A program that frees and allocates in turn finds its object there with
//! one load. The main sheaf takes two dependent loads, each of which would wait for the store of
//! the call before. Decision 005 has the figures.
//!
//! `top` and `spare` lead to the two sheaves. They are distances from the *origin*, the word `top`
//! of the item's first cell, so that fresh memory, all zero, is a valid cell. One origin for all
//! cells saves the sections an addition. `top` is the distance to the slot above the main sheaf's
//! uppermost pointer, and `spare` is the same for the other sheaf.
//!
//! A distance of 0 means no sheaf. Sections then read the origin as the slot, and the word below it
//! as the pointer. Both are 0, as in a sheaf that is full and empty at once. If the item has one
//! cell, the origin is that cell's own `top`, which is 0. In a group of several classes no class
//! uses the first cell. The word below is the cell's lock, which stays 0 where sections run.
//!
//! In the rseq tiers, sections on a lane's CPU change a cell. So does the holder of the cache's
//! lock, after closing the gate and a fence; the cell's own lock stays 0. In lane 0, and in every
//! lane of the atomic tier, the holder of the cell's lock changes the cell. `alloc` and `free` only
//! try to take that lock, and nothing is hot there.
//!
//! malloc's group keeps two more things in the first cell of each lane. In `spare`, which no
//! section reads, is how many bytes of large objects the lane holds: see [`reserved`]. In `hot` is
//! a countdown of allocations, by which one of them leaves the fast path: see [`countdown`].
//!
//! Sections compare distances only. That suffices: equal distances name the same sheaf with the
//! same count, whatever happened in between.

pub(crate) mod countdown;
pub(super) mod encoding;
pub(super) mod reserved;
pub(super) mod sheaf;

use crate::lanes::table::{self, STRIDE};
use crate::section::{Outcome, Processor, SlabSections as _, TOP_OFFSET};
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use countdown::Countdown;
use reserved::Reserved;
use sheaf::Sheaf;

/// Offset of the lock from the cell: sections read it as the 0 below the first `top`.
const LOCK_OFFSET: usize = TOP_OFFSET - 8;
/// Offset of the word that leads to the spare sheaf from the cell.
const SPARE_OFFSET: usize = TOP_OFFSET + 8;
pub(super) const CELL_BYTES: usize = SPARE_OFFSET + 8;

/// A cell: a cache's part of one lane.
#[derive(Clone, Copy)]
pub(super) struct CacheCell {
    address: usize,
    number: usize,
    cell: usize,
}

/// The word of a cell that leads to the main or the spare sheaf.
#[derive(Clone, Copy)]
pub(super) struct SheafWord {
    lane: CacheCell,
    offset: usize,
}

impl CacheCell {
    /// Returns the cell at offset `cell` of the item at `item`, in lane `number`.
    fn of(item: usize, cell: usize, number: usize) -> CacheCell {
        CacheCell { address: item + cell + number * STRIDE, number, cell }
    }

    /// Returns the cell in the lane of a table entry; entry 0 stands for lane 0.
    pub(super) fn from_entry(item: usize, cell: usize, entry: usize) -> CacheCell {
        CacheCell::of(item, cell, table::lane_of(entry))
    }

    /// Returns the cells that may hold objects, one for each lane.
    pub(super) fn all(item: usize, cell: usize) -> impl Iterator<Item = CacheCell> {
        (0..=table::in_use()).map(move |number| CacheCell::of(item, cell, number))
    }

    pub(super) fn number(self) -> usize {
        self.number
    }

    pub(super) fn lock(self) -> &'static Lock {
        // SAFETY: lanes in use stay mapped forever, and this word belongs to the cache while it
        // lives. A zeroed word is an unlocked lock.
        unsafe { &*((self.address + LOCK_OFFSET) as *const Lock) }
    }

    /// Returns whether the cell holds nothing and no thread has its lock; an estimate.
    pub(super) fn is_empty(self) -> bool {
        // Checked first: a thread that takes the lock after this load runs at the same time as the
        // caller, which need not count its objects. Acquire, in `is_held`: the loads below come
        // later, and see what the last holder stored.
        if self.lock().is_held() {
            return false;
        }
        let hot = self.word_at(0).load(Relaxed);
        hot == 0 && self.main().load().is_none() && self.spare().load().is_none()
    }

    /// Returns how many objects the cell holds; an estimate while other threads use it.
    pub(super) fn objects(self) -> usize {
        let sheaves = [self.main(), self.spare()].map(|word| match word.load() {
            seen if seen.is_none() => 0,
            seen => sheaf::count_below(seen.top),
        });
        usize::from(self.word_at(0).load(Relaxed) != 0) + sheaves[0] + sheaves[1]
    }

    /// Takes the hot object, if there is one. The caller owns the cell.
    pub(super) fn take_hot(self) -> Option<usize> {
        let hot = self.word_at(0);
        let encoded = hot.load(Relaxed);
        hot.store(0, Relaxed);
        (encoded != 0).then_some(encoded)
    }

    fn word_at(self, offset: usize) -> &'static AtomicUsize {
        // SAFETY: lanes in use stay mapped forever, and this word belongs to the cache while it
        // lives. All accesses to it are atomic.
        unsafe { &*((self.address + offset) as *const AtomicUsize) }
    }

    pub(super) fn main(self) -> SheafWord {
        SheafWord { lane: self, offset: TOP_OFFSET }
    }

    pub(super) fn spare(self) -> SheafWord {
        SheafWord { lane: self, offset: SPARE_OFFSET }
    }

    /// Swaps the main and the spare sheaf of a cell that the caller owns.
    ///
    /// A child forked in between loses one sheaf, and no object gets two owners.
    pub(super) fn swap_sheaves(self) {
        let spare = self.spare().swap(None);
        let main = self.main().swap(spare);
        self.spare().swap(main);
    }

    /// Returns what large objects may take in this lane, of a group of several classes.
    pub(super) fn reserved(self) -> &'static Reserved {
        debug_assert!(self.cell != 0, "a group of one class has no cell to spare");
        let word = self.base() - TOP_OFFSET + SPARE_OFFSET;
        // SAFETY: lanes in use stay mapped forever, and the word belongs to the group while it
        // lives. `Reserved` is an atomic word, for which all values are valid.
        unsafe { &*(word as *const Reserved) }
    }

    /// Returns the countdown in this lane, of a group of several classes.
    pub(super) fn countdown(self) -> &'static Countdown {
        let word = self.base() - TOP_OFFSET;
        // SAFETY: lanes in use stay mapped forever, and the word belongs to the group while it
        // lives. `Countdown` is two atomic words, for which all values are valid.
        unsafe { &*(word as *const Countdown) }
    }

    /// Returns this lane's cell of another class of the group.
    pub(super) fn with_cell(self, cell: usize) -> CacheCell {
        CacheCell { address: self.address - self.cell + cell, cell, ..self }
    }

    /// Returns the address that distances start from.
    fn base(self) -> usize {
        self.address - self.cell + TOP_OFFSET
    }

    /// Returns the distance to a sheaf's top, or 0 for no sheaf.
    fn distance(self, sheaf: Option<&Sheaf>) -> usize {
        sheaf.map_or(0, |sheaf| sheaf.top().wrapping_sub(self.base()))
    }
}

/// What a sheaf word held when it was loaded; it may have changed, so changes compare.
#[derive(Clone, Copy)]
pub(super) struct WordState {
    distance: usize,
    top: usize,
}

impl WordState {
    pub(super) fn is_none(self) -> bool {
        self.distance == 0
    }

    /// Returns the capacity of the sheaf, or 0 for none; an estimate.
    pub(super) fn capacity(self) -> usize {
        if self.is_none() { 0 } else { sheaf::capacity_at(self.top) }
    }

    pub(super) fn has_objects(self) -> bool {
        !self.is_none() && sheaf::load_below(self.top) != 0
    }

    pub(super) fn has_room(self) -> bool {
        !self.is_none() && sheaf::has_room(self.top)
    }
}

impl SheafWord {
    fn word(self) -> &'static AtomicUsize {
        self.lane.word_at(self.offset)
    }

    pub(super) fn load(self) -> WordState {
        // Relaxed: a section compares the value before it acts on it, or the caller owns the cell.
        let distance = self.word().load(Relaxed);
        WordState { distance, top: self.lane.base().wrapping_add(distance) }
    }

    /// Replaces the sheaf that was seen, in a section.
    ///
    /// Returns the sheaf that was there, or `sheaf` if the word has changed. The calling thread
    /// must still be on this lane's CPU for the section to commit.
    // Not inlined: each copy of the section would need a test that drives it, and some callers are
    // rare.
    #[inline(never)]
    pub(super) fn compare_exchange(
        self,
        gate: &AtomicUsize,
        seen: WordState,
        sheaf: Option<Sheaf>,
    ) -> Result<Option<Sheaf>, Option<Sheaf>> {
        let new = self.lane.distance(sheaf.as_ref());
        // SAFETY: `gate` is the gate of the cache that this cell belongs to. This thread owns
        // `sheaf` and has written its slots. The kernel orders these stores before the next thread
        // of the lane (see `design::percpu`, "The lane index").
        let outcome = unsafe {
            Processor::cmpxchg_cell(
                gate,
                table::entry_of(self.lane.number),
                self.lane.cell + self.offset,
                seen.distance,
                new,
            )
        };
        match outcome {
            Outcome::Committed => Ok((!seen.is_none()).then(|| Sheaf::from_top(seen.top))),
            _ => Err(sheaf),
        }
    }

    /// Replaces the sheaf in a cell that the caller owns; returns the one that was there.
    pub(super) fn swap(self, sheaf: Option<Sheaf>) -> Option<Sheaf> {
        let seen = self.load();
        self.word().store(self.lane.distance(sheaf.as_ref()), Relaxed);
        (!seen.is_none()).then(|| Sheaf::from_top(seen.top))
    }
}
