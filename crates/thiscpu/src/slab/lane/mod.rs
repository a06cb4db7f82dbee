//! A cache's part of a lane: one hot entry, and two sheaves.
//!
//! ```text
//! lane 0 (shared), lane i, at the cache's cell: | hot : 8 | lock : 4, 0 : 4 | top : 8 | spare : 8 |
//! ```
//!
//! `hot` is the entry that was freed last, or 0; in malloc's classes always that. A program that allocates and frees in turn finds what it wants there, by
//! one load; the top of a sheaf takes two, one after the other, and each would wait for the store before: 8.1 ns for 4.4 on a
//! Xeon of 2023.
//!
//! `top` says where the top of the main sheaf is, as its distance from the item's first `top`; 0 if there is none, and then the
//! word below is 0, as if it were empty, and the word at it is 0, as if it were full. A cache by itself has the first, and it is
//! this 0; in a group of several the first cell is nobody's. `spare` says the
//! same of the other sheaf, from the same place, and is 0 if there is none. Both are distances, so that memory that was
//! never used means what it should. That they are from the same place for all cells spares sections an addition.
//!
//! In the rseq tiers lanes but lane 0 are changed by sections on their CPU only, and, after a closed gate and a fence, by
//! whoever holds the cache's lock. Their own lock stays 0. Elsewhere, and in lane 0, by whoever holds the lane's lock, which is
//! only ever tried for; nothing is hot there.

pub(super) mod encoding;
pub(super) mod sheaf;

use crate::lanes::table::{self, STRIDE};
use crate::section::{Outcome, Processor, SlabSections as _, TOP};
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use sheaf::Sheaf;

/// From the cell to the lock, which is the 0 in front of the first `top` where sections look.
const LOCK_OFFSET: usize = TOP - 8;
/// From the cell to the word about the spare sheaf.
const SPARE_OFFSET: usize = TOP + 8;
pub(super) const CELL_BYTES: usize = SPARE_OFFSET + 8;

/// A cache's part of one lane.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    address: usize,
    number: usize,
    cell: usize,
}

/// One of its two words.
#[derive(Clone, Copy)]
pub(super) struct SheafSlot {
    lane: Lane,
    offset: usize,
}

impl Lane {
    /// Lane `number` of the cache whose part of that item is at `cell`.
    fn of(item: usize, cell: usize, number: usize) -> Lane {
        Lane { address: item + cell + number * STRIDE, number, cell }
    }

    /// The lane of a table entry; 0 is for lane 0.
    pub(super) fn from_entry(item: usize, cell: usize, entry: usize) -> Lane {
        Lane::of(item, cell, table::lane_of(entry))
    }

    /// All lanes that may hold something.
    pub(super) fn all(item: usize, cell: usize) -> impl Iterator<Item = Lane> {
        (0..=table::in_use()).map(move |number| Lane::of(item, cell, number))
    }

    pub(super) fn number(self) -> usize {
        self.number
    }

    fn entry(self) -> usize {
        table::entry_of(self.number)
    }

    pub(super) fn lock(self) -> &'static Lock {
        // SAFETY: each lane in use of a cache's item is accessible as long as the cache lives, which no caller
        // outlives; zero is a lock.
        unsafe { &*((self.address + LOCK_OFFSET) as *const Lock) }
    }

    /// Whether nothing is hot, and no sheaf is in it, nor in the hands of who holds its lock; about.
    pub(super) fn is_empty(self) -> bool {
        // First: who takes it later began later.
        if self.lock().is_held() {
            return false;
        }
        let hot = self.slot_word(0).load(Relaxed);
        hot == 0 && self.main().load().is_none() && self.spare().load().is_none()
    }

    /// Takes the hot entry away, for whoever owns the lane.
    pub(super) fn take_hot(self) -> Option<usize> {
        let hot = self.slot_word(0);
        let encoded = hot.load(Relaxed);
        hot.store(0, Relaxed);
        (encoded != 0).then_some(encoded)
    }

    fn slot_word(self, offset: usize) -> &'static AtomicUsize {
        // SAFETY: as for `lock`.
        unsafe { &*((self.address + offset) as *const AtomicUsize) }
    }

    pub(super) fn main(self) -> SheafSlot {
        SheafSlot { lane: self, offset: TOP }
    }

    pub(super) fn spare(self) -> SheafSlot {
        SheafSlot { lane: self, offset: SPARE_OFFSET }
    }

    /// What distances are from.
    fn base(self) -> usize {
        self.address - self.cell + TOP
    }

    /// What a distance leads to.
    fn top_at(self, distance: usize) -> usize {
        self.base().wrapping_add(distance)
    }

    /// The distance that says a sheaf's top, or that there is none.
    fn distance(self, sheaf: Option<&Sheaf>) -> usize {
        sheaf.map_or(0, |sheaf| sheaf.top().wrapping_sub(self.base()))
    }
}

/// What a hand was seen to hold. It may have changed by now; who acts on it compares.
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
        // Relaxed: whoever acts on it compares in a section, or owns the lane.
        let distance = self.word().load(Relaxed);
        SlotState { distance, top: self.lane.top_at(distance) }
    }

    /// Exchanges what was seen for a sheaf, in a section: what was there, or the sheaf if that was not done. This
    /// lane must still be the calling thread's.
    // Not inlined: each copy of the section would need a test that drives it, and some of its callers are seldom needed.
    #[inline(never)]
    pub(super) fn compare_exchange(
        self,
        gate: &AtomicUsize,
        seen: SlotState,
        sheaf: Option<Sheaf>,
    ) -> Result<Option<Sheaf>, Option<Sheaf>> {
        let new = self.lane.distance(sheaf.as_ref());
        // SAFETY: the gate is this cache's, and the sheaf whole and nobody else's.
        let outcome = unsafe {
            Processor::cmpxchg_cell(
                gate,
                self.lane.entry(),
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

    /// The same for whoever owns the lane.
    pub(super) fn swap(self, sheaf: Option<Sheaf>) -> Option<Sheaf> {
        let seen = self.load();
        self.word().store(self.lane.distance(sheaf.as_ref()), Relaxed);
        (!seen.is_none()).then(|| Sheaf::from_top(seen.top))
    }
}
