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
use crate::sys::waker;

/// The state of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    /// It has its units.
    Granted,
    /// The budget was closed while it waited. For a rate: it will never get its units.
    Closed,
    /// It still waits, but should look again. Only rates do this.
    Nudged,
}

/// The waiters, the first in front. Changed under the budget's lock.
pub(crate) struct Queue {
    first: AtomicPtr<Waiter>,
    last: AtomicPtr<Waiter>,
    /// The number of waiters.
    len: AtomicU32,
}

/// A thread or task that waits for units.
pub(crate) struct Waiter {
    pub(crate) units: i64,
    /// A [`State`]; a waiting thread sleeps on it.
    state: AtomicU32,
    /// The process in which it was queued.
    generation: Cell<u32>,
    /// Both links change under the budget's lock.
    prev: Cell<*const Waiter>,
    next: Cell<*const Waiter>,
    /// The waker of a task, `None` for a thread. Accessed under the budget's lock once queued.
    task: UnsafeCell<Option<Waker>>,
}

/// A waiter whose wait has ended, and that must be woken.
pub(crate) enum Wakeup {
    Thread(*const AtomicU32),
    Task(Waker),
}

impl Wakeup {
    /// Wakes the waiter, and drops the panic of a task's waker. The caller holds no lock.
    pub(crate) fn wake_caught(self) {
        match self {
            Wakeup::Task(task) => waker::wake_caught(task),
            thread => thread.wake(),
        }
    }

    /// Wakes the waiter. May run a task's own code, so the caller holds no lock.
    pub(crate) fn wake(self) {
        match self {
            // The thread may already have seen its state and returned. Then at most a thread that
            // sleeps on the same address wakes spuriously, which every futex caller allows for. If
            // its stack is unmapped, the call fails with EFAULT, which is ignored.
            Wakeup::Thread(state) => Host::wake(state, 1),
            Wakeup::Task(task) => task.wake(),
        }
    }
}

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue {
            first: AtomicPtr::new(ptr::null_mut()),
            last: AtomicPtr::new(ptr::null_mut()),
            len: AtomicU32::new(0),
        }
    }

    /// Returns the first waiter, or null.
    pub(crate) fn first(&self) -> *const Waiter {
        // Relaxed, here and below: the budget's lock orders all accesses.
        self.first.load(Relaxed)
    }

    /// Returns the number of waiters. Exact under the budget's lock.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// Appends a waiter.
    ///
    /// # Safety
    ///
    /// The caller holds the budget's lock. The waiter is in no queue, and stays where it is until
    /// it has been removed.
    pub(crate) unsafe fn push(&self, waiter: &Waiter) {
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
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
    pub(crate) unsafe fn remove(&self, waiter: &Waiter) {
        self.len.store(self.len.load(Relaxed) - 1, Relaxed);
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

    /// Removes the first waiter, and ends its wait with the state `end`.
    ///
    /// # Safety
    ///
    /// The caller holds the budget's lock. `first` is the first waiter of this queue.
    pub(crate) unsafe fn end_wait(&self, first: *const Waiter, end: State) -> Wakeup {
        // SAFETY: the caller guarantees that the lock is held and that `first` is in this queue, so
        // it is valid until its state changes. The waker of a queued waiter is accessed under
        // the lock only.
        unsafe {
            self.remove(&*first);
            let task = (*(*first).task.get()).take();
            let state = &raw const (*first).state;
            // Release: pairs with the Acquire in `Waiter::state`. The waiter may be gone after this
            // store, and therefore `first` is no reference.
            (*state).store(end as u32, Release);
            task.map_or(Wakeup::Thread(state), Wakeup::Task)
        }
    }

    /// Tells the first waiter to look again, if it may be asleep. It stays in the queue.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the queue's owner.
    pub(crate) unsafe fn nudge_first(&self) -> Option<Wakeup> {
        // SAFETY: the first pointer is null or a queued waiter, which stays where it is while the
        // lock is held. The caller holds it.
        unsafe { self.first().as_ref()?.nudge() }
    }

    /// Tells all waiters to look again. They stay in the queue.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the queue's owner.
    pub(crate) unsafe fn nudge_all(&self) -> Vec<Wakeup> {
        let mut wakeups = Vec::new();
        let mut next = self.first();
        // SAFETY: each pointer is null or a queued waiter, which stays where it is while the lock
        // is held.
        while let Some(waiter) = unsafe { next.as_ref() } {
            // SAFETY: the caller holds the lock.
            wakeups.extend(unsafe { waiter.nudge() });
            next = waiter.next.get();
        }
        wakeups
    }

    /// Forgets all waiters, whose threads a fork did not copy. Their wakers leak.
    ///
    /// The caller holds the budget's lock.
    pub(crate) fn clear(&self) {
        self.first.store(ptr::null_mut(), Relaxed);
        self.last.store(ptr::null_mut(), Relaxed);
        self.len.store(0, Relaxed);
    }
}

impl Waiter {
    /// Creates a waiter for `units` that is in no queue.
    pub(crate) fn new(units: i64) -> Waiter {
        Waiter {
            units,
            state: AtomicU32::new(State::Waiting as u32),
            generation: Cell::new(0),
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            task: UnsafeCell::new(None),
        }
    }

    /// Prepares the waiter for the queue of this process; returns the waker of an earlier wait.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue of this process, so only the caller accesses it.
    pub(crate) unsafe fn prepare(&self, task: Option<Waker>) -> Option<Waker> {
        self.state.store(State::Waiting as u32, Relaxed);
        self.generation.set(Host::generation());
        // SAFETY: the caller guarantees that nobody else accesses the waiter.
        unsafe { std::mem::replace(&mut *self.task.get(), task) }
    }

    /// Replaces the waker of a task and returns the old one.
    ///
    /// # Safety
    ///
    /// The caller holds the budget's lock.
    pub(crate) unsafe fn replace_task(&self, task: Option<Waker>) -> Option<Waker> {
        // SAFETY: the waker of a queued waiter is accessed under the lock only, which the caller
        // holds.
        unsafe { std::mem::replace(&mut *self.task.get(), task) }
    }

    /// Marks the waiter as nudged, and returns how to wake it, unless it has something to do.
    ///
    /// # Safety
    ///
    /// The waiter is queued, and the caller holds the lock of the queue's owner.
    unsafe fn nudge(&self) -> Option<Wakeup> {
        if self.state() != State::Waiting {
            return None;
        }
        self.state.store(State::Nudged as u32, Release);
        // SAFETY: the waker of a queued waiter is accessed under the lock only.
        let task = unsafe { (*self.task.get()).take() };
        Some(task.map_or(Wakeup::Thread(&raw const self.state), Wakeup::Task))
    }

    /// Waits on, after a nudge. The caller holds the lock, under which the state changes.
    pub(crate) fn rearm(&self) {
        if self.state() == State::Nudged {
            // Relaxed: only the waiter itself needs the state, until the lock passes on.
            self.state.store(State::Waiting as u32, Relaxed);
        }
    }

    /// Puts the thread to sleep until its wait may have ended, or until `timeout` has passed.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        Host::wait(&self.state, State::Waiting as u32, timeout);
    }

    /// Returns the state of the waiter.
    pub(crate) fn state(&self) -> State {
        // Acquire: pairs with the Release in `Queue::end_wait`, after which that thread leaves the
        // waiter alone.
        match self.state.load(Acquire) {
            0 => State::Waiting,
            1 => State::Granted,
            2 => State::Closed,
            _ => State::Nudged,
        }
    }

    /// Returns whether the waiter was queued in this process.
    ///
    /// If so, it is still queued unless its wait has ended. A child discards its parent's queue.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.generation.get() == Host::generation()
    }

    /// Returns whether no waiter is behind this one. The caller holds the budget's lock.
    pub(crate) fn is_last(&self) -> bool {
        self.next.get().is_null()
    }
}
