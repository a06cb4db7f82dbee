//! `slub-lock`, the design that F replaced: each CPU's freelist behind a lock of its own.
//!
//! The kernel disabled interrupts instead of taking a lock, so no thread had to wait. A program
//! cannot do that: its lock is a word that threads exchange. A thread waits if it was moved, or if
//! another thread was preempted while it held the lock.

use std::{cell::UnsafeCell, mem};

use super::{Allocator, chain::Chain, slabs::Slabs};
use crate::contenders::lanes::{Lanes, SpinLock};

/// The freelists, and the slabs behind them. Tests have one freelist, where threads meet.
pub(crate) struct SlubLock<const LANES_MAX: usize = { usize::MAX }> {
    freelists: Lanes<Freelist>,
    slabs: Slabs,
}

/// One CPU's free objects, and the lock that guards them.
#[derive(Default)]
pub(super) struct Freelist {
    lock: SpinLock,
    objects: UnsafeCell<Chain>,
}

// SAFETY: only `locked` accesses the objects, one thread at a time, and `Chain` is `Send`.
unsafe impl Sync for Freelist {}

impl Freelist {
    #[inline(always)]
    fn locked<T>(&self, work: impl FnOnce(&mut Chain) -> T) -> T {
        // SAFETY: this thread holds the lock, so no other thread accesses the objects meanwhile.
        self.lock.locked(|| work(unsafe { &mut *self.objects.get() }))
    }
}

impl<const LANES_MAX: usize> Allocator for SlubLock<LANES_MAX> {
    fn new(size: usize) -> Self {
        Self { freelists: Lanes::at_most(LANES_MAX), slabs: Slabs::new(size) }
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
            if objects.count() == self.slabs.objects_per_slab {
                self.slabs.put(mem::take(objects));
            }
            // SAFETY: objects have room for an aligned word, and the caller guarantees that this
            // one is no longer used.
            unsafe { objects.push(object) };
        });
    }
}
