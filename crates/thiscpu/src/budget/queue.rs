//! The queue of waiters, in the order they came.
//!
//! Waiters are on the stacks of their threads or in their futures, linked both ways. Links change
//! under the budget's lock. A waiter in the queue does not move and is not freed.

use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::task::Waker;
use std::time::Duration;

use crate::sys::Host;
use crate::sys::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::machine::Machine as _;

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

/// The waiters, the first in front. Changed under the budget's lock.
pub(super) struct Queue {
    first: AtomicPtr<Waiter>,
    last: AtomicPtr<Waiter>,
}

/// A thread or task that waits for units.
pub(super) struct Waiter {
    pub(super) units: i64,
    /// `WAITING` or `GRANTED`; a waiting thread sleeps on it.
    state: AtomicU32,
    /// The process in which it was queued.
    generation: Cell<u32>,
    /// Both links change under the budget's lock.
    prev: Cell<*const Waiter>,
    next: Cell<*const Waiter>,
    /// The waker of a task, `None` for a thread. Accessed under the budget's lock once queued.
    task: UnsafeCell<Option<Waker>>,
}

/// A waiter that has received its units and must be woken.
pub(super) enum Grant {
    Thread(*const AtomicU32),
    Task(Waker),
}

impl Grant {
    /// Wakes the waiter. May run a task's own code, so the caller holds no lock.
    pub(super) fn wake(self) {
        match self {
            // The thread may already have seen the grant and returned. Then at most a thread that
            // sleeps on the same address wakes spuriously, which every futex caller allows for. If
            // its stack is unmapped, the call fails with EFAULT, which is ignored.
            Grant::Thread(state) => Host::wake(state, 1),
            Grant::Task(task) => task.wake(),
        }
    }
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue { first: AtomicPtr::new(ptr::null_mut()), last: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the first waiter, or null.
    pub(super) fn first(&self) -> *const Waiter {
        // Relaxed, here and below: the budget's lock orders all accesses.
        self.first.load(Relaxed)
    }

    /// Appends a waiter.
    ///
    /// # Safety
    ///
    /// The caller holds the budget's lock. The waiter is in no queue, and stays where it is until
    /// it has been removed.
    pub(super) unsafe fn push(&self, waiter: &Waiter) {
        let last = self.last.load(Relaxed).cast_const();
        waiter.prev.set(last);
        waiter.next.set(ptr::null());
        self.last.store(ptr::from_ref(waiter).cast_mut(), Relaxed);
        // SAFETY: `last` is null or a queued waiter; the contract of its `push` keeps it in place.
        match unsafe { last.as_ref() } {
            None => self.first.store(ptr::from_ref(waiter).cast_mut(), Relaxed),
            Some(last) => last.next.set(waiter),
        }
    }

    /// Removes a waiter.
    ///
    /// # Safety
    ///
    /// The caller holds the budget's lock. The waiter is in this queue.
    pub(super) unsafe fn remove(&self, waiter: &Waiter) {
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        // SAFETY: `prev` is null or a queued waiter; the contract of its `push` keeps it in place.
        match unsafe { prev.as_ref() } {
            None => self.first.store(next.cast_mut(), Relaxed),
            Some(prev) => prev.next.set(next),
        }
        // SAFETY: `next` is null or a queued waiter; the contract of its `push` keeps it in place.
        match unsafe { next.as_ref() } {
            None => self.last.store(prev.cast_mut(), Relaxed),
            Some(next) => next.prev.set(prev),
        }
    }

    /// Removes the first waiter and marks it as granted.
    ///
    /// # Safety
    ///
    /// The caller holds the budget's lock. `first` is the first waiter of this queue.
    pub(super) unsafe fn grant(&self, first: *const Waiter) -> Grant {
        // SAFETY: the caller guarantees that the lock is held and that `first` is in this queue, so
        // it is valid until it is marked as granted. The waker of a queued waiter is accessed under
        // the lock only.
        unsafe {
            self.remove(&*first);
            let task = (*(*first).task.get()).take();
            let state = &raw const (*first).state;
            // Release: pairs with the Acquire in `is_granted`. The waiter may be gone after this
            // store, and therefore `first` is no reference.
            (*state).store(GRANTED, Release);
            task.map_or(Grant::Thread(state), Grant::Task)
        }
    }

    /// Forgets all waiters, whose threads a fork did not copy. Their wakers leak.
    ///
    /// The caller holds the budget's lock.
    pub(super) fn clear(&self) {
        self.first.store(ptr::null_mut(), Relaxed);
        self.last.store(ptr::null_mut(), Relaxed);
    }
}

impl Waiter {
    /// Creates a waiter for `units` that is in no queue.
    pub(super) fn new(units: i64) -> Waiter {
        Waiter {
            units,
            state: AtomicU32::new(WAITING),
            generation: Cell::new(0),
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            task: UnsafeCell::new(None),
        }
    }

    /// Prepares the waiter for the queue of this process.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue of this process, so only the caller accesses it.
    pub(super) unsafe fn prepare(&self, task: Option<Waker>) {
        self.state.store(WAITING, Relaxed);
        self.generation.set(Host::generation());
        // SAFETY: the caller guarantees that nobody else accesses the waiter.
        unsafe { *self.task.get() = task };
    }

    /// Replaces the waker of a task and returns the old one.
    ///
    /// # Safety
    ///
    /// The caller holds the budget's lock.
    pub(super) unsafe fn replace_task(&self, task: Option<Waker>) -> Option<Waker> {
        // SAFETY: the waker of a queued waiter is accessed under the lock only, which the caller
        // holds.
        unsafe { std::mem::replace(&mut *self.task.get(), task) }
    }

    /// Puts the thread to sleep until it may have been granted, or until `timeout` has passed.
    pub(super) fn sleep(&self, timeout: Option<Duration>) {
        Host::wait(&self.state, WAITING, timeout);
    }

    /// Returns whether the waiter has its units.
    pub(super) fn is_granted(&self) -> bool {
        // Acquire: pairs with the Release in `Queue::grant`, after which that thread leaves the
        // waiter alone.
        self.state.load(Acquire) == GRANTED
    }

    /// Returns whether the waiter was queued in this process.
    ///
    /// If so, it is still queued unless it was granted. A child discards its parent's queue.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.generation.get() == Host::generation()
    }

    /// Returns whether no waiter is behind this one. The caller holds the budget's lock.
    pub(super) fn is_last(&self) -> bool {
        self.next.get().is_null()
    }
}
