//! The slow path: calls whose lane lacked an object, or room for one.
//!
//! Sections change a lane one word at a time. A thread that takes a sheaf out of a slot owns the
//! sheaf, and must find another place for it. If another thread on this CPU changed the lane in
//! between, a comparison fails and the attempt is repeated. After a few attempts the call does
//! without its lane.

use core::ptr::NonNull;

use super::Handle;
use crate::lanes::current;
use crate::section::{ATTEMPTS, Access, Outcome, Processor, SlabSections as _};
use crate::slab::arena::heap_error::HeapError;
use crate::slab::arena::purge;
use crate::slab::backend::Backend;
use crate::slab::lane::encoding;
use crate::slab::lane::sheaf::Sheaf;
use crate::slab::lane::{CacheCell, SheafWord, WordState};
use crate::sys::degradation;
use crate::sys::errno;
use crate::sys::lock::Guard;
use crate::sys::startup;
use crate::tier::Tier;

/// The result of an attempt to refill a lane or to make room in it.
enum Attempt<T> {
    /// The lane has changed: try again.
    Retry,
    /// The attempt is over, with this result.
    Done(T),
}

impl<A: Access> Handle<'_, A> {
    /// Allocates by the gate, or else by the slow path, for a call whose fast path failed.
    ///
    /// The fast path of a constructed class is by the gate already.
    #[inline]
    pub(crate) fn alloc_gated(self) -> Option<NonNull<u8>> {
        if self.class.lifecycle.is_some() {
            return self.alloc_constructed_slow();
        }
        self.group.enable_direct();
        self.alloc_or(|| self.alloc_slow())
    }

    /// Frees by the gate, or else by the slow path, for a call whose fast path failed.
    ///
    /// The object is marked as free already.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
    #[inline]
    pub(crate) unsafe fn free_gated(self, object: NonNull<u8>) {
        // SAFETY: the caller guarantees that `object` is of this class and no longer used. It is
        // given up by one of these calls only.
        unsafe {
            if self.class.lifecycle.is_some() {
                return self.free_constructed_slow(object);
            }
            self.group.enable_direct();
            if !self.free_marked(object) {
                self.free_slow(object);
            }
        }
    }

    /// Allocates where the lane has no object: from barns and slabs.
    pub fn alloc_slow(self) -> Option<NonNull<u8>> {
        let _errno = errno::save();
        let backend = self.backend()?;
        self.find_object(backend).and_then(|encoded| self.hand_out(encoded))
    }

    /// Allocates from the lane's spare sheaf, which becomes the main one; never trades.
    ///
    /// Returns `None` if that sheaf has no object either.
    pub fn alloc_spare(self) -> Option<NonNull<u8>> {
        let backend = self.class.backend_if_used()?;
        for _ in 0..ATTEMPTS {
            let lane = self.current_lane()?;
            let (main, spare) = (lane.main().load(), lane.spare().load());
            if !main.has_objects() {
                if !spare.has_objects() {
                    return None;
                }
                self.swap_spare(backend, lane, main, spare);
            }
            // SAFETY: `gate_ptr` is the gate of a group in which this class has its cell, followed
            // by the direct table. The handle's maker guaranteed what the access `A` requires.
            let encoded = unsafe { Processor::pop_object::<A>(self.group.gate_ptr(), self.cell) };
            if encoded != 0 {
                return self.hand_out(encoded);
            }
        }
        None
    }

    /// Allocates an object from a slab, past lane and barn.
    pub fn alloc_from_slab(self) -> Option<NonNull<u8>> {
        let _errno = errno::save();
        self.backend()?.object_from_slab().and_then(|encoded| self.hand_out(encoded))
    }

    pub(super) fn find_object(self, backend: &'static Backend) -> Option<usize> {
        for _ in 0..ATTEMPTS {
            // SAFETY: `gate_ptr` is the gate of a group in which this class has its cell, followed
            // by the direct table. The handle's maker guaranteed what the access `A` requires.
            let encoded = unsafe { Processor::pop_object::<A>(self.group.gate_ptr(), self.cell) };
            if encoded != 0 {
                return Some(encoded);
            }
            let Some(lane) = self.current_lane() else { break };
            if let Attempt::Done(found) = self.refill(backend, lane) {
                return found;
            }
        }
        self.pop_locked(backend)
    }

    /// Frees an object where the lane has no room: to barns and slabs.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
    pub unsafe fn free_slow(self, object: NonNull<u8>) {
        let _errno = errno::save();
        self.free_slow_unchecked(object.as_ptr().expose_provenance());
        // This thread holds no lock here.
        purge::purge_if_due();
    }

    /// Frees an object into the lane's spare sheaf, which becomes the main one; never trades.
    ///
    /// Returns false, and frees nothing, if the spare sheaf has no room either, if it is smaller
    /// than new ones, or if all attempts fail. The object is already marked as free.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
    pub unsafe fn free_spare(self, object: NonNull<u8>) -> bool {
        let Some(backend) = self.class.backend_if_used() else { return false };
        for _ in 0..ATTEMPTS {
            let Some(lane) = self.current_lane() else { return false };
            let (main, spare) = (lane.main().load(), lane.spare().load());
            if !main.has_room() {
                if !spare.has_room() || spare.capacity() < backend.capacity() {
                    return false;
                }
                self.swap_spare(backend, lane, main, spare);
            }
            // SAFETY: the caller guarantees that `object` is of this class and no longer used. Only
            // the call that returns true takes it.
            if unsafe { self.free_marked(object) } {
                return true;
            }
        }
        false
    }

    fn free_slow_unchecked(self, object: usize) {
        let Some(backend) = self.class.backend_if_used() else {
            // The class was never used, so no object is of this class.
            HeapError::InvalidFree.report(object, self.class.shape.size)
        };
        let encoded = backend.info.key.encode(object);
        encoding::set_mark(backend.info.mark_of(encoded), encoded);
        for _ in 0..ATTEMPTS {
            // SAFETY: `gate_ptr` is the gate of a group in which this class has its cell, followed
            // by the direct table. The handle's maker guaranteed what the access `A` requires.
            // `encoded` is not 0, and the caller of `free_slow` gives its object up.
            let outcome =
                unsafe { Processor::push_object::<A>(self.group.gate_ptr(), self.cell, encoded) };
            if outcome == Outcome::Committed {
                return;
            }
            let Some(lane) = self.current_lane() else { break };
            if let Attempt::Done(()) = self.make_room(backend, lane) {
                break;
            }
        }
        self.push_locked(backend, encoded);
    }

    /// Returns the calling thread's lane, if sections can use it.
    fn current_lane(self) -> Option<CacheCell> {
        if startup::tier_or_panic() == Tier::Atomic {
            return None;
        }
        let seen = self.group.gate.load();
        let item = seen.item()?;
        if seen.is_closed() {
            // The thread that closed the gate holds the lock, or was lost in a fork.
            let _guard = self.group.lock.try_lock()?;
            self.group.gate.set(self.group.gate.load().opened(item));
        }
        // If there is none, `locked_lane` counts the call.
        if current::entry() == 0 && !current::try_acquire_lane() {
            return None;
        }
        let entry = current::entry();
        if entry == 0 {
            return None;
        }
        self.group.enable_direct();
        Some(CacheCell::from_entry(item, self.cell, entry))
    }

    /// Gets objects into a lane whose main sheaf is empty.
    fn refill(self, backend: &'static Backend, lane: CacheCell) -> Attempt<Option<usize>> {
        let (main, spare) = (lane.main().load(), lane.spare().load());
        if main.has_objects() {
            return Attempt::Retry;
        }
        if spare.has_objects() {
            self.swap_spare(backend, lane, main, spare);
            return Attempt::Retry;
        }
        let Some(mut sheaf) = backend.filled_sheaf(lane.number()) else {
            return Attempt::Done(backend.any_object(lane.number()));
        };
        let encoded = sheaf.pop();
        self.install(backend, lane, main, sheaf);
        Attempt::Done(encoded)
    }

    /// Makes room in a lane whose main sheaf is full; `Done` if there is no memory for a sheaf.
    fn make_room(self, backend: &'static Backend, lane: CacheCell) -> Attempt<()> {
        let (main, spare) = (lane.main().load(), lane.spare().load());
        if main.has_room() {
            return Attempt::Retry;
        }
        // A spare sheaf that is smaller than new ones is traded for one of those.
        if spare.has_room() && spare.capacity() >= backend.capacity() {
            self.swap_spare(backend, lane, main, spare);
            return Attempt::Retry;
        }
        let Some(sheaf) = backend.empty_sheaf(lane.number()) else {
            if spare.has_room() {
                self.swap_spare(backend, lane, main, spare);
                return Attempt::Retry;
            }
            return self.flush_one(backend, lane, main, spare);
        };
        if !spare.is_none()
            && let Ok(Some(full)) = self.exchange(lane, lane.spare(), spare, None)
        {
            backend.put(full, lane.number());
        }
        self.install(backend, lane, main, sheaf);
        Attempt::Retry
    }

    /// Flushes one of a lane's sheaves to the slabs, for lack of memory for another sheaf.
    ///
    /// Otherwise each call would ask for that memory, and free into its slab, until the lane is
    /// popped from.
    fn flush_one(
        self,
        backend: &'static Backend,
        lane: CacheCell,
        main: WordState,
        spare: WordState,
    ) -> Attempt<()> {
        let (slot, seen) = match spare.is_none() {
            true => (lane.main(), main),
            false => (lane.spare(), spare),
        };
        match self.exchange(lane, slot, seen, None) {
            Ok(Some(full)) => {
                self.stash(backend, lane, backend.flush_to_slabs(full, Some(lane.number())))
            }
            Ok(None) => return Attempt::Done(()),
            Err(_) => {}
        }
        Attempt::Retry
    }

    /// Makes the spare sheaf the main one, and fills or empties it to about half its capacity.
    ///
    /// If swaps left the main sheaf empty or full, a program that allocates and frees a few objects
    /// in turn could swap in every second call.
    fn swap_spare(
        self,
        backend: &'static Backend,
        lane: CacheCell,
        main: WordState,
        spare: WordState,
    ) {
        let gate = self.group.gate.word();
        // Both sheaves leave the lane, so that no section sees some of the objects move. They still
        // count among the lane's large objects.
        let Ok(Some(mut sheaf)) = lane.spare().compare_exchange(gate, spare, None) else { return };
        let mut old = match lane.main().compare_exchange(gate, main, None) {
            Ok(old) => old,
            Err(_) => return self.put_back(backend, lane, lane.spare(), sheaf),
        };
        if let Some(old) = &mut old {
            sheaf.level(old);
        }
        self.put_back(backend, lane, lane.main(), sheaf);
        if let Some(old) = old {
            self.put_back(backend, lane, lane.spare(), old);
        }
        backend.count_swap(lane.number());
    }

    /// Puts a sheaf that counts as the lane's into a slot, or hands it to the backend.
    fn put_back(self, backend: &'static Backend, lane: CacheCell, slot: SheafWord, sheaf: Sheaf) {
        let seen = slot.load();
        let left = match seen.is_none() {
            true => slot.compare_exchange(self.group.gate.word(), seen, Some(sheaf)),
            false => Err(Some(sheaf)),
        };
        if let Err(Some(sheaf)) = left {
            self.count_reserved(lane, 0, Some(&sheaf));
            backend.put(sheaf, lane.number());
        }
    }

    /// Makes a sheaf the main one, if the slot still holds what was seen.
    fn install(self, backend: &'static Backend, lane: CacheCell, main: WordState, sheaf: Sheaf) {
        let (Ok(rest) | Err(rest)) = self.exchange(lane, lane.main(), main, Some(sheaf));
        if let Some(rest) = rest {
            self.stash(backend, lane, rest);
        }
    }

    /// Makes a sheaf the spare one if there is none, or else hands it to the backend.
    fn stash(self, backend: &'static Backend, lane: CacheCell, sheaf: Sheaf) {
        let spare = lane.spare().load();
        let rest = match spare.is_none() {
            true => {
                self.exchange(lane, lane.spare(), spare, Some(sheaf)).unwrap_or_else(|sheaf| sheaf)
            }
            false => Some(sheaf),
        };
        if let Some(rest) = rest {
            backend.put(rest, lane.number());
        }
    }

    /// Locks a lane that is changed under its lock, if no other thread has that lock.
    ///
    /// In the atomic tier this is the lane of the CPU that the thread was last seen on. For a
    /// thread without a lane it is lane 0. A thread that has a lane, which just cannot be used,
    /// gets none.
    fn locked_lane(self) -> Option<(CacheCell, Guard<'static>)> {
        let item = self.group.item()?;
        let has_lane = current::entry() != 0 || current::try_acquire_lane();
        let entry = match startup::tier_or_panic() {
            Tier::Atomic if has_lane => current::entry(),
            // Such a thread would not find later what it left in lane 0.
            _ if has_lane => return None,
            _ => {
                degradation::count_shared_lane_call();
                0
            }
        };
        let lane = CacheCell::from_entry(item, self.cell, entry);
        Some((lane, lane.lock().try_lock()?))
    }

    fn pop_locked(self, backend: &'static Backend) -> Option<usize> {
        let Some((lane, _guard)) = self.locked_lane() else { return backend.one_object(0) };
        if !lane.main().load().has_objects() {
            lane.swap_sheaves();
        }
        if !lane.main().load().has_objects() {
            let Some(sheaf) = backend.filled_sheaf(lane.number()) else {
                return backend.any_object(lane.number());
            };
            if let Some(empty) = self.swap(lane, lane.main(), Some(sheaf)) {
                backend.put(empty, lane.number());
            }
        }
        let mut sheaf = self.swap(lane, lane.main(), None)?;
        let encoded = sheaf.pop();
        self.swap(lane, lane.main(), Some(sheaf));
        encoded
    }

    fn push_locked(self, backend: &'static Backend, encoded: usize) {
        let Some((lane, guard)) = self.locked_lane() else { return backend.free_object(encoded) };
        if !lane.main().load().has_room() {
            lane.swap_sheaves();
        }
        if !lane.main().load().has_room() {
            // The cache stays open while this object is allocated, whatever is flushed.
            let flush = |full| backend.flush_to_slabs(full, Some(lane.number()));
            let emptied = || self.swap(lane, lane.main(), None).map(flush);
            let Some(empty) = backend.empty_sheaf(lane.number()).or_else(emptied) else {
                // Unlocked first: once the object is in its slab, another thread may close the
                // cache, and its lanes may be another cache's.
                drop(guard);
                return backend.free_object(encoded);
            };
            if let Some(full) = self.swap(lane, lane.main(), Some(empty)) {
                backend.put(full, lane.number());
            }
        }
        let Some(mut sheaf) = self.swap(lane, lane.main(), None) else {
            drop(guard);
            return backend.free_object(encoded);
        };
        sheaf.push(encoded);
        self.swap(lane, lane.main(), Some(sheaf));
    }
}
