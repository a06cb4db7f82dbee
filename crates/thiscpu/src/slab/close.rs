//! Shrinking a cache, and ending it.

use core::fmt;
use core::mem::ManuallyDrop;

use super::class::Handle;
use super::depot::Depot;
use super::lane::Lane;
use super::sheaf::List;
use super::{RawCache, purge};
use crate::sys::fence;
use crate::sys::tier::{self, Tier};

impl Handle<'_> {
    /// Empties lanes and stocks.
    pub fn shrink(self) {
        let Some(depot) = self.class.depot_if_used() else { return };
        let sheaves = List::new();
        {
            let _guard = self.group.lock.lock();
            self.empty_lanes(depot, &sheaves);
            self.empty_shared_lane(&sheaves);
        }
        // Others may shrink, or begin to use another class, meanwhile.
        depot.empty_stocks(core::iter::from_fn(|| sheaves.pop()));
        self.retire();
    }

    /// Takes what came into lane 0 while the gate was closed, and where those who have a lane would not find it. Under the lock.
    fn empty_shared_lane(self, sheaves: &List) {
        let Some(item) = self.group.gate.look().item() else { return };
        let lane = Lane::at_entry(item, self.cell, 0);
        let _guard = lane.lock().lock();
        let both = [lane.main().swap(None), lane.spare().swap(None)];
        both.into_iter().flatten().for_each(|sheaf| sheaves.push(sheaf));
    }

    /// Takes the sheaves out of all lanes, and what is hot. Under the lock.
    fn empty_lanes(self, depot: &'static Depot, sheaves: &List) {
        let gate = &self.group.gate;
        let seen = gate.look();
        let Some(item) = seen.item() else { return };
        let has_sections = tier::expect() != Tier::Atomic;
        gate.turn(seen.closed());
        let is_fenced = has_sections && fence::try_fence().is_ok();
        for lane in Lane::all(item, self.cell) {
            let is_locked = !has_sections || lane.number() == 0;
            // What is under a lock may be waited for: nobody who has it waits for this.
            let _guard = is_locked.then(|| lane.lock().lock());
            if is_locked || is_fenced {
                let both = [lane.main().swap(None), lane.spare().swap(None)];
                both.into_iter().flatten().for_each(|sheaf| sheaves.push(sheaf));
                if let Some(entry) = lane.take_hot() {
                    add(depot, lane, entry, sheaves);
                }
            }
        }
        if has_sections {
            gate.turn(seen.opened(item));
        }
    }
}

/// Adds an entry to a list of sheaves; to its slab if there is no memory for another sheaf.
fn add(depot: &'static Depot, lane: Lane, entry: usize, sheaves: &List) {
    let sheaf = match sheaves.pop() {
        Some(first) if !first.is_full() => Some(first),
        full => {
            full.into_iter().for_each(|sheaf| sheaves.push(sheaf));
            depot.empty(lane.number())
        }
    };
    match sheaf {
        Some(mut sheaf) => {
            sheaf.push(entry);
            sheaves.push(sheaf);
        }
        None => depot.put_entry(entry),
    }
}

impl RawCache {
    /// Gives what is free back: lanes and shared stores are emptied into their slabs, and the pages of all slabs
    /// without an object go back to the system, those of other caches too. How many bytes that were.
    ///
    /// For the time of one fence calls of `alloc` and `free` do without their lanes. Where a sandbox has taken away both membarrier
    /// and `sched_setaffinity` after the start, lanes keep what they have.
    pub fn shrink(&self) -> usize {
        self.handle().shrink();
        purge::purge()
    }

    /// Ends the cache: all of its memory is free for others.
    ///
    /// # Errors
    ///
    /// If objects are still out; the error says how many, and has the cache, unharmed.
    pub fn close(self) -> Result<(), StillOut> {
        match self.release() {
            Ok(()) => {
                let _ = ManuallyDrop::new(self);
                Ok(())
            }
            Err(objects) => Err(StillOut { cache: self, objects }),
        }
    }

    /// Gives all memory back if no object is out; else says how many are.
    pub(super) fn release(&self) -> Result<(), usize> {
        let Some(depot) = self.class.depot_if_used() else { return Ok(()) };
        self.handle().shrink();
        match depot.objects_out_for_good() {
            0 => {
                depot.settle();
                self.group.give_up();
                self.class.give_up(depot);
                Ok(())
            }
            objects => Err(objects),
        }
    }
}

/// A cache cannot be closed: objects are still out.
#[derive(Debug)]
#[non_exhaustive]
pub struct StillOut<C = RawCache> {
    /// The cache, as it was.
    pub cache: C,
    /// How many objects are out.
    pub objects: usize,
}

impl<C> fmt::Display for StillOut<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the cache cannot be closed: {} of its objects are still out; free them first, or drop the cache to leave \
             them where they are",
            self.objects
        )
    }
}

impl<C: fmt::Debug> std::error::Error for StillOut<C> {}

impl Drop for RawCache {
    /// Ends the cache. If objects are out they stay valid for ever, with their slabs; in debug builds a line on standard
    /// error says so.
    fn drop(&mut self) {
        if let Err(objects) = self.release() {
            say_leaked(objects, self.object_bytes());
        }
    }
}

/// In debug builds.
pub(super) fn say_leaked(objects: usize, size: usize) {
    if cfg!(debug_assertions) && !cfg!(thiscpu_model) {
        eprintln!(
            "thiscpu: a cache of {size}-byte objects was dropped while {objects} were out; they stay"
        );
    }
}
