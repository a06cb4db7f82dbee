//! What a call does that did not find what it wanted in its lane.
//!
//! A lane is changed one word at a time: whoever takes a sheaf out of a hand owns it from then on, and finds another place for it.
//! What others on this CPU have done in between shows in a comparison that fails; then the call begins again. It has what it
//! needs after a few tries, or does without its lane.

use core::ptr::NonNull;

use super::Handle;
use crate::lanes::current;
use crate::section::{ATTEMPTS, Access, Outcome, Processor, SlabSections as _};
use crate::slab::arena::heap_error::HeapError;
use crate::slab::arena::purge;
use crate::slab::backend::Depot;
use crate::slab::lane::encoding;
use crate::slab::lane::sheaf::Sheaf;
use crate::slab::lane::{Lane, SlotState};
use crate::sys::errno;
use crate::sys::lock::Guard;
use crate::sys::startup;
use crate::tier::Tier;

/// What a look after a lane has come to.
enum Next<T> {
    /// Try again.
    Again,
    /// That is what was wanted.
    Done(T),
}

impl<A: Access> Handle<'_, A> {
    /// An object, where the lane has none.
    pub fn alloc_slowly(self) -> Option<NonNull<u8>> {
        let _errno = errno::save();
        let depot = self.depot()?;
        self.find_entry(depot).and_then(|encoded| self.hand_out(encoded))
    }

    pub(super) fn find_entry(self, depot: &'static Depot) -> Option<usize> {
        for _ in 0..ATTEMPTS {
            // SAFETY: the gate and the cell are a class's, and the way's promise was given.
            let encoded =
                unsafe { Processor::pop_object::<A>(self.group.gate_and_front(), self.cell) };
            if encoded != 0 {
                return Some(encoded);
            }
            let Some(lane) = self.own_lane() else { break };
            if let Next::Done(found) = self.refill(depot, lane) {
                return found;
            }
        }
        self.take_locked(depot)
    }

    /// Frees the object of an entry, where the lane has no room.
    ///
    /// # Safety
    ///
    /// As for [`free_or`](Handle::free_or).
    pub unsafe fn free_slowly(self, object: NonNull<u8>) {
        let _errno = errno::save();
        self.free_anywhere(object.as_ptr().expose_provenance());
        // Here this thread holds no lock.
        purge::purge_if_excess();
    }

    fn free_anywhere(self, object: usize) {
        let Some(depot) = self.class.depot_if_used() else {
            // Nothing was ever handed out.
            HeapError::InvalidFree.report(object, self.class.shape.size)
        };
        let encoded = depot.kind.key.encode(object);
        encoding::set_mark(depot.kind.mark_of(encoded), encoded);
        for _ in 0..ATTEMPTS {
            // SAFETY: the gate is a cache's; the object is the caller's, who gives it up.
            let outcome = unsafe {
                Processor::push_object::<A>(self.group.gate_and_front(), self.cell, encoded)
            };
            if outcome == Outcome::Committed {
                return;
            }
            let Some(lane) = self.own_lane() else { break };
            if let Next::Done(()) = self.make_room(depot, lane) {
                break;
            }
        }
        self.give_locked(depot, encoded);
    }

    /// The calling thread's lane, if sections can use it.
    fn own_lane(self) -> Option<Lane> {
        if startup::tier_or_panic() == Tier::Atomic {
            return None;
        }
        let seen = self.group.gate.load();
        let item = seen.item()?;
        if seen.is_closed() {
            // Whoever has closed it has the lock, or was left behind by a fork.
            let _guard = self.group.lock.try_lock()?;
            self.group.gate.set(self.group.gate.load().opened(item));
        }
        if current::entry() == 0 && !current::acquire_lane() {
            return None;
        }
        let entry = current::entry();
        if entry == 0 {
            return None;
        }
        self.group.come_near();
        Some(Lane::from_entry(item, self.cell, entry))
    }

    /// Gets entries into a lane whose main sheaf has none.
    fn refill(self, depot: &'static Depot, lane: Lane) -> Next<Option<usize>> {
        let (main, spare) = (lane.main().load(), lane.spare().load());
        if main.has_objects() {
            return Next::Again;
        }
        if spare.has_objects() {
            self.turn_round(depot, lane, main, spare);
            return Next::Again;
        }
        let Some(mut sheaf) = depot.with_entries(lane.number()) else {
            return Next::Done(depot.last_entry(lane.number()));
        };
        let encoded = sheaf.pop();
        self.install(depot, lane, main, sheaf);
        Next::Done(encoded)
    }

    /// Gets room into a lane whose main sheaf has none; `Done` if there is no memory for any sheaf.
    fn make_room(self, depot: &'static Depot, lane: Lane) -> Next<()> {
        let (main, spare) = (lane.main().load(), lane.spare().load());
        if main.has_room() {
            return Next::Again;
        }
        if spare.has_room() {
            self.turn_round(depot, lane, main, spare);
            return Next::Again;
        }
        let Some(sheaf) = depot.empty(lane.number()) else {
            return self.empty_one(depot, lane, main, spare);
        };
        if !spare.is_none()
            && let Ok(Some(full)) =
                lane.spare().compare_exchange(self.group.gate.word(), spare, None)
        {
            depot.put(full, lane.number());
        }
        self.install(depot, lane, main, sheaf);
        Next::Again
    }

    /// Empties one of a lane's sheaves into the slabs, where there is no memory for another. Else each call would ask for that memory, and go to
    /// the slab by itself, until a lane has taken something.
    fn empty_one(
        self,
        depot: &'static Depot,
        lane: Lane,
        main: SlotState,
        spare: SlotState,
    ) -> Next<()> {
        let (slot, seen) = match spare.is_none() {
            true => (lane.main(), main),
            false => (lane.spare(), spare),
        };
        match slot.compare_exchange(self.group.gate.word(), seen, None) {
            Ok(Some(full)) => self.put_aside(depot, lane, depot.to_slabs(full)),
            Ok(None) => return Next::Done(()),
            Err(_) => {}
        }
        Next::Again
    }

    /// Makes the spare sheaf the main one.
    fn turn_round(self, depot: &'static Depot, lane: Lane, main: SlotState, spare: SlotState) {
        if let Ok(Some(sheaf)) = lane.spare().compare_exchange(self.group.gate.word(), spare, None)
        {
            self.install(depot, lane, main, sheaf);
        }
    }

    /// Makes a sheaf the main one, if that is still what was seen.
    fn install(self, depot: &'static Depot, lane: Lane, main: SlotState, sheaf: Sheaf) {
        let (Ok(rest) | Err(rest)) =
            lane.main().compare_exchange(self.group.gate.word(), main, Some(sheaf));
        if let Some(rest) = rest {
            self.put_aside(depot, lane, rest);
        }
    }

    /// Makes a sheaf the spare one if there is none; else it goes to the depot.
    fn put_aside(self, depot: &'static Depot, lane: Lane, sheaf: Sheaf) {
        let spare = lane.spare().load();
        let rest = match spare.is_none() {
            true => lane
                .spare()
                .compare_exchange(self.group.gate.word(), spare, Some(sheaf))
                .unwrap_or_else(|sheaf| sheaf),
            false => Some(sheaf),
        };
        if let Some(rest) = rest {
            depot.put(rest, lane.number());
        }
    }

    /// A lane that is changed under its lock, if nobody has that: where there are no sections, the one that this thread seems
    /// to be on; for threads that have none lane 0. A thread whose lane is just not to be used does without one.
    fn locked_lane(self) -> Option<(Lane, Guard<'static>)> {
        let item = self.group.item()?;
        let has_lane = current::entry() != 0 || current::acquire_lane();
        let entry = match startup::tier_or_panic() {
            Tier::Atomic if has_lane => current::entry(),
            // What it left in lane 0 it would not find there, nor would others like it.
            _ if has_lane => return None,
            _ => 0,
        };
        let lane = Lane::from_entry(item, self.cell, entry);
        Some((lane, lane.lock().try_lock()?))
    }

    fn take_locked(self, depot: &'static Depot) -> Option<usize> {
        let Some((lane, _guard)) = self.locked_lane() else { return depot.one_entry(0) };
        if !lane.main().load().has_objects() {
            let other = lane.spare().swap(None);
            let main = lane.main().swap(other);
            lane.spare().swap(main);
        }
        if !lane.main().load().has_objects() {
            let Some(sheaf) = depot.with_entries(lane.number()) else {
                return depot.last_entry(lane.number());
            };
            if let Some(empty) = lane.main().swap(Some(sheaf)) {
                depot.put(empty, lane.number());
            }
        }
        let mut sheaf = lane.main().swap(None)?;
        let encoded = sheaf.pop();
        lane.main().swap(Some(sheaf));
        encoded
    }

    fn give_locked(self, depot: &'static Depot, encoded: usize) {
        let Some((lane, guard)) = self.locked_lane() else { return depot.put_entry(encoded) };
        if !lane.main().load().has_room() {
            let other = lane.spare().swap(None);
            let main = lane.main().swap(other);
            lane.spare().swap(main);
        }
        if !lane.main().load().has_room() {
            // The cache stays as long as this object is out, whatever goes to the slabs.
            let emptied = || lane.main().swap(None).map(|full| depot.to_slabs(full));
            let Some(empty) = depot.empty(lane.number()).or_else(emptied) else {
                // First, because once the object is in its slab the cache may be closed, and its lanes be others'.
                drop(guard);
                return depot.put_entry(encoded);
            };
            if let Some(full) = lane.main().swap(Some(empty)) {
                depot.put(full, lane.number());
            }
        }
        let Some(mut sheaf) = lane.main().swap(None) else {
            drop(guard);
            return depot.put_entry(encoded);
        };
        sheaf.push(encoded);
        lane.main().swap(Some(sheaf));
    }
}
