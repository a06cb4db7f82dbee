//! `slub-lock`, the design that F replaced: each CPU's freelist behind a lock of its own.
//!
//! The kernel disabled interrupts instead of taking a lock, so no thread had to wait. A program
//! cannot do that: its lock is a word that threads exchange. A thread waits if it was moved, or if
//! another thread was preempted while it held the lock.

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

/// One freelist per CPU, and the slabs behind them.
pub(crate) struct SlubLock {
    freelists: Lanes<Freelist>,
    slabs: Slabs,
    count_max: usize,
}

/// One CPU's free objects, and the lock that guards them.
#[derive(Default)]
pub(super) struct Freelist {
    is_locked: AtomicBool,
    objects: UnsafeCell<Chain>,
}

// SAFETY: only `locked` accesses the objects, one thread at a time, and `Chain` is `Send`.
unsafe impl Sync for Freelist {}

impl Freelist {
    /// Runs `work` while holding the lock.
    #[inline(always)]
    fn locked<T>(&self, work: impl FnOnce(&mut Chain) -> T) -> T {
        // Acquire: pairs with the Release store below, made by the previous holder.
        while self.is_locked.swap(true, Acquire) {
            // Relaxed: the load is only a hint that the swap may now succeed.
            lanes::wait_until(|| !self.is_locked.load(Relaxed));
        }
        // SAFETY: the swap acquired the lock, so no other thread accesses the objects before the
        // store below.
        let outcome = work(unsafe { &mut *self.objects.get() });
        // Release: pairs with the Acquire swap above, made by the next holder.
        self.is_locked.store(false, Release);
        outcome
    }
}

impl SlubLock {
    /// Creates an allocator with the given empty freelists.
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
            // SAFETY: objects have room for an aligned word, and the caller guarantees that this
            // one is no longer used.
            unsafe { objects.push(object) };
        });
    }
}
