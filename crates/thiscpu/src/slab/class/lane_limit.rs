//! The limit of a lane's large objects.
//!
//! Two sheaves of each of more than a hundred classes would be 190 MiB for each lane. So a slow
//! call of a large class, after which the lane's sheaves could hold more than the limit, takes
//! sheaves of other large classes out of this lane, by the section that trades use. They go to
//! their barns. No thread waits for that, and no fence is needed.

use super::group::Group;
use super::{Class, Handle};
use crate::lanes::{current, table};
use crate::section::Access;
use crate::slab::arena;
use crate::slab::lane::sheaf::Sheaf;
use crate::slab::lane::{CacheCell, SheafWord, WordState};
use crate::sys::startup;
use crate::tier::Tier;

/// All lanes together hold this much, and this part of the memory in use.
///
/// Free chunks may keep as many pages before they are purged at once.
const ALL_BYTES_MIN: usize = if cfg!(thiscpu_model) { 64 * 1024 } else { 16 * 1024 * 1024 };
const USED_DIVISOR: usize = 4;
/// The most bytes that one lane holds.
const BYTES_MAX: usize = if cfg!(thiscpu_model) { 48 * 1024 } else { 16 * 1024 * 1024 };

/// Returns how many bytes of large objects a lane may hold.
fn limit() -> usize {
    let all = ALL_BYTES_MIN + arena::used_bytes() / USED_DIVISOR;
    (all / table::in_use().max(1)).min(BYTES_MAX)
}

impl Class {
    /// Returns the bytes that a sheaf in a lane counts with: 0 unless the objects are large.
    fn reserved_bytes(&self, sheaf: Option<&Sheaf>) -> isize {
        match sheaf {
            Some(sheaf) if arena::is_large_class(self.tag) => {
                (sheaf.capacity() * self.shape.size) as isize
            }
            _ => 0,
        }
    }
}

impl Group {
    /// Takes sheaves out of the calling thread's lane while its large objects exceed the limit.
    ///
    /// `class` returns the class of each number below `count`; their cells follow each other, and
    /// all of them are large. `own` is the number of the calling class, whose main sheaf stays.
    pub fn bound_lane<'a, A: Access>(
        &'a self,
        count: usize,
        own: usize,
        class: impl Fn(usize) -> Handle<'a, A>,
    ) {
        let Some(lane) = class(own).lane_as_seen() else { return };
        let [main_bytes, spare_bytes] =
            [lane.main(), lane.spare()].map(|slot| class(own).bytes_of(slot.load().capacity()));
        let (reserved, most) = (lane.reserved(), limit());
        if class(own).bytes_of(class(own).sheaf_capacity()) > most {
            // The main sheaf stays, but new sheaves should fit.
            class(own).lower_capacity();
        }
        let limit = most.max(main_bytes);
        if reserved.bytes() <= limit {
            return;
        }
        // Looking at all classes takes longer than the rest of a slow call.
        if reserved.bytes() > main_bytes + spare_bytes {
            let first = reserved.cursor() % count;
            for number in (first..first + count).map(|number| number % count).filter(|&n| n != own)
            {
                if !class(number).evict(lane, true) {
                    return;
                }
                if reserved.bytes() <= limit {
                    return reserved.set_cursor(number);
                }
            }
        }
        // New sheaves stay as large: without a spare one, the main one fits.
        class(own).evict(lane, false);
    }
}

impl<A: Access> Handle<'_, A> {
    /// Returns the cell in the lane that the calling thread was last seen on.
    fn lane_as_seen(self) -> Option<CacheCell> {
        let item = self.group.gate.load().item()?;
        Some(CacheCell::from_entry(item, self.cell, current::entry()))
    }

    /// Takes this class's sheaves out of a lane: the spare one, and maybe the main one.
    ///
    /// Returns false if another thread has just changed the lane, or is changing it.
    fn evict(self, lane: CacheCell, with_main: bool) -> bool {
        let lane = lane.with_cell(self.cell);
        let slots = [Some(lane.spare()), with_main.then(|| lane.main())];
        slots.into_iter().flatten().all(|slot| self.evict_from(lane, slot, with_main))
    }

    /// Returns the bytes that a sheaf of that capacity holds.
    fn bytes_of(self, capacity: usize) -> usize {
        self.class.shape.size * capacity
    }

    /// Makes new sheaves of this class smaller.
    fn lower_capacity(self) {
        if let Some(backend) = self.class.backend_if_used() {
            backend.lower_capacity();
        }
    }

    /// Takes the sheaf in a slot out of a lane, and may make new ones smaller.
    fn evict_from(self, lane: CacheCell, slot: SheafWord, should_lower: bool) -> bool {
        let seen = slot.load();
        if seen.is_none() {
            return true;
        }
        let is_locked = startup::tier_or_panic() == Tier::Atomic || lane.number() == 0;
        let taken = if is_locked {
            let Some(_guard) = lane.lock().try_lock() else { return false };
            self.swap(lane, slot, None)
        } else {
            match self.exchange(lane, slot, seen, None) {
                Ok(taken) => taken,
                Err(_) => return false,
            }
        };
        if let (Some(sheaf), Some(backend)) = (taken, self.class.backend_if_used()) {
            backend.put(sheaf, lane.number());
            if should_lower {
                backend.lower_capacity();
            }
        }
        true
    }

    /// Replaces the sheaf that was seen in a slot, in a section, and counts large objects.
    pub(super) fn exchange(
        self,
        lane: CacheCell,
        slot: SheafWord,
        seen: WordState,
        sheaf: Option<Sheaf>,
    ) -> Result<Option<Sheaf>, Option<Sheaf>> {
        let added = self.class.reserved_bytes(sheaf.as_ref());
        let result = slot.compare_exchange(self.group.gate.word(), seen, sheaf);
        if let Ok(old) = &result {
            self.count_reserved(lane, added, old.as_ref());
        }
        result
    }

    /// Replaces the sheaf in a slot of a lane that the caller owns, and counts large objects.
    pub(super) fn swap(
        self,
        lane: CacheCell,
        slot: SheafWord,
        sheaf: Option<Sheaf>,
    ) -> Option<Sheaf> {
        let added = self.class.reserved_bytes(sheaf.as_ref());
        let old = slot.swap(sheaf);
        self.count_reserved(lane, added, old.as_ref());
        old
    }

    /// Counts bytes of large objects that a lane got, and those of a sheaf that left it.
    pub(super) fn count_reserved(self, lane: CacheCell, added: isize, old: Option<&Sheaf>) {
        if arena::is_large_class(self.class.tag) {
            lane.reserved().add(added - self.class.reserved_bytes(old));
        }
    }
}
