//! `slub-tid`, design F: each CPU's freelist with a transaction id, changed by a two-word exchange.
//!
//! The id counts changes of the freelist. An exchange that finds both words unchanged proves that
//! the freelist has not changed since they were loaded. The first object's link, which was read in
//! between, is therefore still correct.
//!
//! The kernel's exchange is atomic only on its own CPU, and its id contains the CPU's number, which
//! proves that the thread is still on that CPU. A program may be moved in between, so the exchange
//! here is atomic for all CPUs, and any CPU's freelist will do. Instead of the CPU's number the id
//! contains the number of free objects, which limits the freelist to as many as a slab has.

use std::{ptr, sync::atomic::Ordering::Relaxed};

use super::{
    Allocator,
    chain::{Chain, link},
    double::Double,
    slabs::Slabs,
};
use crate::contenders::lanes::Lanes;

/// The freelists, and the slabs behind them. Tests have one freelist, where threads meet.
pub(crate) struct SlubTid<const LANES_MAX: usize = { usize::MAX }> {
    freelists: Lanes<Double>,
    slabs: Slabs,
}

#[derive(Clone, Copy)]
struct State {
    head: *mut u8,
    id: u64,
}

impl State {
    /// The bits of an id that count objects; the other bits count changes.
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

    /// Returns the state of the freelist after one more change.
    #[inline(always)]
    fn next(self, head: *mut u8, count: usize) -> Self {
        let events = (self.id | Self::COUNT).wrapping_add(1);
        Self { head, id: events | count as u64 }
    }

    #[inline(always)]
    fn words(self) -> [u64; 2] {
        [self.head as u64, self.id]
    }

    /// Replaces the freelist's state by `after` if it is still `self`; returns whether it did.
    #[inline(always)]
    fn becomes(self, after: Self, freelist: &Double) -> bool {
        freelist.exchange(self.words(), after.words())
    }
}

impl<const LANES_MAX: usize> SlubTid<LANES_MAX> {
    /// Takes objects from the slabs: returns one, and puts the others on the empty freelist.
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
            // SAFETY: these parts are from the chain that was taken, which never got on the
            // freelist.
            self.slabs.put(unsafe { Chain::from_parts(head, count) });
        }
        object
    }
}

impl<const LANES_MAX: usize> Allocator for SlubTid<LANES_MAX> {
    fn new(size: usize) -> Self {
        Self { freelists: Lanes::at_most(LANES_MAX), slabs: Slabs::new(size) }
    }

    #[inline(always)]
    fn alloc(&self, _size: usize) -> *mut u8 {
        let freelist = self.freelists.here();
        loop {
            let before = State::of(freelist);
            if before.head.is_null() {
                return self.refill(freelist);
            }
            // The two words may be from different moments, and the freelist was empty at one.
            let Some(count) = before.count().checked_sub(1) else { continue };
            // SAFETY: the object's memory lives as long as the allocator. Another thread may have
            // allocated the object by now and write to it. For the language this is a race; for the
            // processor it is a load of some word, which is used only if the exchange shows that
            // the object was free all the time. Relaxed: the thread that wrote the link did so
            // before the exchange that set this id, and `State::of` acquires that exchange.
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
            let is_full = before.count() == self.slabs.objects_per_slab;
            let (next, count) =
                if is_full { (ptr::null_mut(), 1) } else { (before.head, before.count() + 1) };
            // SAFETY: objects have room for an aligned word, and the caller guarantees that this
            // one is no longer used. Relaxed: the exchange below releases the link.
            unsafe { link(object).store(next, Relaxed) };
            if before.becomes(before.next(object, count), freelist) {
                if is_full {
                    // SAFETY: the exchange has taken all of these objects off the freelist at once.
                    self.slabs.put(unsafe { Chain::from_parts(before.head, before.count()) });
                }
                return;
            }
        }
    }
}
