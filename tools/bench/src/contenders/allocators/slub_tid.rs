//! `slub-tid`, design F: each CPU's freelist and a transaction id, changed together by an exchange of two words.
//!
//! The id counts what has happened to the freelist. An exchange that finds both words as they were proves that
//! nothing has happened since they were loaded, so that the first object's link, which was read in between, is what
//! comes after it.
//!
//! The kernel's exchange is atomic towards its own CPU only, and its id has the CPU's number too, which proves
//! that we are still there. A program may be moved in the middle of it, so here the exchange is one that all CPUs
//! respect, and it does not matter whose freelist it changes. The id has the number of free objects instead, by
//! which the freelist is kept to a slab's worth.

use std::{ptr, sync::atomic::Ordering::Relaxed};

use super::{
    Allocator,
    chain::{Chain, link},
    double::Double,
    slabs::Slabs,
};
use crate::contenders::lanes::Lanes;

/// A freelist a CPU, and slabs behind them.
pub(crate) struct SlubTid {
    freelists: Lanes<Double>,
    slabs: Slabs,
    count_max: usize,
}

/// The two words of a freelist.
#[derive(Clone, Copy)]
struct State {
    head: *mut u8,
    id: u64,
}

impl State {
    /// The bits of an id that are a number of objects; the others are a number of events.
    const COUNT: u64 = 0xffff;

    #[inline(always)]
    fn of(freelist: &Double) -> Self {
        let [head, id] = freelist.load();
        Self { head: head as *mut u8, id }
    }

    #[inline(always)]
    fn count(self) -> usize {
        (self.id & Self::COUNT) as usize
    }

    /// What the freelist is after one more event.
    #[inline(always)]
    fn next(self, head: *mut u8, count: usize) -> Self {
        let events = (self.id | Self::COUNT).wrapping_add(1);
        Self { head, id: events | count as u64 }
    }

    #[inline(always)]
    fn words(self) -> [u64; 2] {
        [self.head as u64, self.id]
    }

    /// Makes the freelist `after`, if it is still as it was found.
    #[inline(always)]
    fn becomes(self, after: Self, freelist: &Double) -> bool {
        freelist.exchange(self.words(), after.words())
    }
}

impl SlubTid {
    /// An allocator that has these freelists, which are empty.
    pub(super) fn with_freelists(freelists: Lanes<Double>, size: usize) -> Self {
        let slabs = Slabs::new(size);
        let count_max = slabs.objects_per_slab();
        Self { freelists, slabs, count_max }
    }

    /// An object where the freelist has none, and more of them for the freelist.
    #[cold]
    fn refill(&self, freelist: &Double) -> *mut u8 {
        let mut objects = self.slabs.take();
        let object = objects.pop();
        let (head, count) = objects.into_parts();
        let mut before = State::of(freelist);
        while before.head.is_null() && !before.becomes(before.next(head, count), freelist) {
            before = State::of(freelist);
        }
        if !before.head.is_null() && count > 0 {
            // SAFETY: these are the parts of what was taken, which the freelist has not got.
            self.slabs.put(unsafe { Chain::from_parts(head, count) });
        }
        object
    }
}

impl Allocator for SlubTid {
    fn new(size: usize) -> Self {
        Self::with_freelists(Lanes::new(), size)
    }

    #[inline(always)]
    fn alloc(&self, _size: usize) -> *mut u8 {
        let freelist = self.freelists.here();
        loop {
            let before = State::of(freelist);
            if before.head.is_null() {
                return self.refill(freelist);
            }
            // The two words may be of two moments, at one of which there was nothing.
            let Some(count) = before.count().checked_sub(1) else { continue };
            // SAFETY: objects' memory stays as long as the allocator. This one may be somebody's by now, who
            // writes to it; to the language that is a race, to the processor a load of some word, which is used
            // only if the exchange shows that the object was free all the time. Relaxed: then whoever wrote
            // it did so before the exchange that made the id what it was, which `State::of` acquires.
            let next = unsafe { link(before.head).load(Relaxed) };
            if before.becomes(before.next(next, count), freelist) {
                return before.head;
            }
        }
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, _size: usize) {
        let freelist = self.freelists.here();
        loop {
            let before = State::of(freelist);
            let is_full = before.count() == self.count_max;
            let (next, count) =
                if is_full { (ptr::null_mut(), 1) } else { (before.head, before.count() + 1) };
            // SAFETY: objects have room for a word, and by this function's own contract this one is nobody
            // else's. Relaxed: the exchange releases it.
            unsafe { link(object).store(next, Relaxed) };
            if before.becomes(before.next(object, count), freelist) {
                if is_full {
                    // SAFETY: the exchange has taken all of them out at once.
                    self.slabs.put(unsafe { Chain::from_parts(before.head, before.count()) });
                }
                return;
            }
        }
    }
}
