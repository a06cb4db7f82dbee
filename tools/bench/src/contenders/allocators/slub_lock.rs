//! `slub-lock`, what design F replaced: each CPU's freelist behind a lock of that CPU's.
//!
//! The kernel's lock was that interrupts are off, which nobody waits for. A program cannot have that: here it is
//! a word that is exchanged, and a thread that was moved, or finds that another was preempted while it held
//! the lock, has to wait.

use std::{
    cell::UnsafeCell,
    mem,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::{Allocator, chain::Chain, slabs::Slabs};
use crate::contenders::lanes::{self, Lanes};

/// A freelist a CPU, and slabs behind them.
pub(crate) struct SlubLock {
    freelists: Lanes<Freelist>,
    slabs: Slabs,
    count_max: usize,
}

/// One CPU's free objects, and the lock that whoever looks at them holds.
#[derive(Default)]
pub(super) struct Freelist {
    is_locked: AtomicBool,
    objects: UnsafeCell<Chain>,
}

// SAFETY: the objects are only accessed by `locked`, which lets one thread at a time do so, and may be
// anybody's.
unsafe impl Sync for Freelist {}

impl Freelist {
    /// Runs `work` as the only one who holds the lock.
    #[inline(always)]
    fn locked<T>(&self, work: impl FnOnce(&mut Chain) -> T) -> T {
        // Acquire: pairs with the Release store below, by the holder before us.
        while self.is_locked.swap(true, Acquire) {
            // Relaxed: only a hint that the swap may now succeed.
            lanes::wait_until(|| !self.is_locked.load(Relaxed));
        }
        // SAFETY: the swap found the lock open, and until the store below nobody else's does.
        let outcome = work(unsafe { &mut *self.objects.get() });
        // Release: pairs with the Acquire swap above, by the next holder.
        self.is_locked.store(false, Release);
        outcome
    }
}

impl SlubLock {
    /// An allocator that has these freelists, which are empty.
    pub(super) fn with_freelists(freelists: Lanes<Freelist>, size: usize) -> Self {
        let slabs = Slabs::new(size);
        let count_max = slabs.objects_per_slab();
        Self { freelists, slabs, count_max }
    }
}

impl Allocator for SlubLock {
    fn new(size: usize) -> Self {
        Self::with_freelists(Lanes::new(), size)
    }

    #[inline(always)]
    fn alloc(&self, _size: usize) -> *mut u8 {
        self.freelists.here().locked(|objects| {
            if objects.count() == 0 {
                *objects = self.slabs.take();
            }
            objects.pop()
        })
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, _size: usize) {
        self.freelists.here().locked(|objects| {
            if objects.count() == self.count_max {
                self.slabs.put(mem::take(objects));
            }
            // SAFETY: objects have room for a word, and by this function's own contract this one is
            // nobody else's.
            unsafe { objects.push(object) };
        });
    }
}
