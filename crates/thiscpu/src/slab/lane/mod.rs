//! A cache's part of a lane: one hot object and two sheaves.
//!
//! ```text
//! at the cache's cell in each lane: | hot : 8 | lock : 4, 0 : 4 | top : 8 | spare : 8 |
//! ```
//!
//! `hot` is the encoded pointer of an object that was freed while `hot` was 0, or 0. malloc's
//! classes do not use it: theirs is always 0. A program that frees and allocates in turn finds its
//! object there with one load. The main sheaf takes two dependent loads, each of which would wait
//! for the store of the call before.
//!
//! `top` leads to the top of the main sheaf: it is the distance from the item's first `top` to the
//! slot above the sheaf's uppermost pointer. It is 0 if there is no main sheaf. Then the word at
//! the first `top` is 0, as if the sheaf were full, and the word below it is 0, as if the sheaf
//! were empty. Both hold because a cache with a group of its own has its cell there, and in a group
//! of several classes no class uses the first cell.
//!
//! `spare` leads to the other sheaf in the same way, from the same place, and is 0 if there is
//! none. Distances make fresh memory, all zero, a valid lane. One origin for all cells saves the
//! sections an addition.
//!
//! In the rseq tiers, sections on a lane's CPU change the lane. So does the holder of the cache's
//! lock, after closing the gate and a fence; the lane's own lock stays 0. Lane 0, and every lane of
//! the atomic tier, is changed by the holder of the lane's lock, which `alloc` and `free` only try
//! to take; nothing is hot there.

pub(super) mod encoding;
pub(super) mod sheaf;

use crate::lanes::table::{self, STRIDE};
use crate::section::{Outcome, Processor, SlabSections as _, TOP_OFFSET};
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use sheaf::Sheaf;

/// Offset of the lock from the cell.
///
/// It precedes `top`, so sections read it as the 0 below the first `top`.
const LOCK_OFFSET: usize = TOP_OFFSET - 8;
/// Offset of the word that leads to the spare sheaf from the cell.
const SPARE_OFFSET: usize = TOP_OFFSET + 8;
pub(super) const CELL_BYTES: usize = SPARE_OFFSET + 8;

/// A cache's part of one lane.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    address: usize,
    number: usize,
    cell: usize,
}

/// The place of the main or the spare sheaf in a lane.
#[derive(Clone, Copy)]
pub(super) struct SheafSlot {
    lane: Lane,
    offset: usize,
}

impl Lane {
    /// Returns lane `number` of the cache whose cell of the item is at `cell`.
    fn of(item: usize, cell: usize, number: usize) -> Lane {
        Lane { address: item + cell + number * STRIDE, number, cell }
    }

    /// Returns the lane that an entry of the lane table stands for; entry 0 stands for lane 0.
    pub(super) fn from_entry(item: usize, cell: usize, entry: usize) -> Lane {
        Lane::of(item, cell, table::lane_of(entry))
    }

    /// Returns all lanes that may hold objects.
    pub(super) fn all(item: usize, cell: usize) -> impl Iterator<Item = Lane> {
        (0..=table::in_use()).map(move |number| Lane::of(item, cell, number))
    }

    pub(super) fn number(self) -> usize {
        self.number
    }

    pub(super) fn lock(self) -> &'static Lock {
        // SAFETY: the lanes in use of a cache's item are mapped while the cache lives, and the
        // caller holds a reference to the cache. A zeroed word is an unlocked lock.
        unsafe { &*((self.address + LOCK_OFFSET) as *const Lock) }
    }

    /// Returns whether the lane holds nothing and no thread has its lock; an estimate.
    pub(super) fn is_empty(self) -> bool {
        // Checked first: a thread that locks the lane later also began its call later.
        if self.lock().is_held() {
            return false;
        }
        let hot = self.slot_word(0).load(Relaxed);
        hot == 0 && self.main().load().is_none() && self.spare().load().is_none()
    }

    /// Takes the hot object, if there is one. The caller owns the lane.
    pub(super) fn take_hot(self) -> Option<usize> {
        let hot = self.slot_word(0);
        let encoded = hot.load(Relaxed);
        hot.store(0, Relaxed);
        (encoded != 0).then_some(encoded)
    }

    fn slot_word(self, offset: usize) -> &'static AtomicUsize {
        // SAFETY: the lanes in use of a cache's item are mapped while the cache lives, and the
        // caller holds a reference to the cache. All accesses to this word are atomic.
        unsafe { &*((self.address + offset) as *const AtomicUsize) }
    }

    pub(super) fn main(self) -> SheafSlot {
        SheafSlot { lane: self, offset: TOP_OFFSET }
    }

    pub(super) fn spare(self) -> SheafSlot {
        SheafSlot { lane: self, offset: SPARE_OFFSET }
    }

    /// Swaps the main and the spare sheaf of a lane that the caller owns.
    pub(super) fn swap_sheaves(self) {
        let spare = self.spare().swap(None);
        let main = self.main().swap(spare);
        self.spare().swap(main);
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

/// What a slot held when it was loaded.
///
/// It may have changed since, so a change to the slot compares.
#[derive(Clone, Copy)]
pub(super) struct SlotState {
    distance: usize,
    top: usize,
}

impl SlotState {
    pub(super) fn is_none(self) -> bool {
        self.distance == 0
    }

    pub(super) fn has_objects(self) -> bool {
        !self.is_none() && sheaf::load_below(self.top) != 0
    }

    pub(super) fn has_room(self) -> bool {
        !self.is_none() && sheaf::has_room(self.top)
    }
}

impl SheafSlot {
    fn word(self) -> &'static AtomicUsize {
        self.lane.slot_word(self.offset)
    }

    pub(super) fn load(self) -> SlotState {
        // Relaxed: a section compares the value before it acts on it, or the caller owns the lane.
        let distance = self.word().load(Relaxed);
        SlotState { distance, top: self.lane.base().wrapping_add(distance) }
    }

    /// Replaces the sheaf that was seen, in a section.
    ///
    /// Returns the sheaf that was there, or `sheaf` if the slot has changed. The calling thread
    /// must still be on this lane's CPU for the section to commit.
    // Not inlined: each copy of the section would need a test that drives it, and some callers are
    // rare.
    #[inline(never)]
    pub(super) fn compare_exchange(
        self,
        gate: &AtomicUsize,
        seen: SlotState,
        sheaf: Option<Sheaf>,
    ) -> Result<Option<Sheaf>, Option<Sheaf>> {
        let new = self.lane.distance(sheaf.as_ref());
        // SAFETY: `gate` is the gate of the cache that this lane belongs to. `sheaf` is owned, so
        // that its slots are complete and no other thread has it.
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

    /// Replaces the sheaf in a lane that the caller owns; returns the one that was there.
    pub(super) fn swap(self, sheaf: Option<Sheaf>) -> Option<Sheaf> {
        let seen = self.load();
        self.word().store(self.lane.distance(sheaf.as_ref()), Relaxed);
        (!seen.is_none()).then(|| Sheaf::from_top(seen.top))
    }
}
