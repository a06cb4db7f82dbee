//! Waiting for units: a queue, first come, first served.
//!
//! While somebody is queued the budget is tight and says so in its pool, and what the pool holds is
//! promised to the first. A waiter makes the budget tight before it takes its last look, so that no
//! release into a lane can miss it. Whoever releases to a queued pool serves the queue; if another
//! holds the lock, that one serves it after it has let go. So a release never waits, and no release
//! is overlooked.

use core::cell::{Cell, UnsafeCell};
use core::future::Future;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::time::Instant;

use super::pool::PoolState;
use super::{Budget, Exhausted, Lease};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire as AcquireOrder, Relaxed, Release, SeqCst},
    fence as memory_fence,
};
use crate::sys::errno;
use crate::sys::lock::Guard;
use crate::sys::machine::Machine as _;

/// Who waits, the first in front. Changed under the budget's lock.
pub(super) struct Queue {
    first: AtomicPtr<Waiter>,
    last: AtomicPtr<Waiter>,
}

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

/// Somebody who waits, on the stack of its thread or in its future.
struct Waiter {
    units: i64,
    /// What its thread sleeps on.
    state: AtomicU32,
    /// The process that it was queued in.
    generation: Cell<u32>,
    /// These are changed under the budget's lock.
    prev: Cell<*const Waiter>,
    next: Cell<*const Waiter>,
    /// Whom to wake, if it is no thread.
    task: UnsafeCell<Option<Waker>>,
}

/// Somebody who has been granted what it waited for.
enum Grant {
    Thread(*const AtomicU32),
    Task(Waker),
}

impl Grant {
    fn wake(self) {
        match self {
            // The thread may have seen the grant and be gone by now; then whoever sleeps there, if anybody
            // does, wakes for no reason, as it may.
            Grant::Thread(state) => Host::wake(state, 1),
            Grant::Task(task) => task.wake(),
        }
    }
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue { first: AtomicPtr::new(ptr::null_mut()), last: AtomicPtr::new(ptr::null_mut()) }
    }

    fn first(&self) -> *const Waiter {
        // Relaxed, here and below: under the lock.
        self.first.load(Relaxed)
    }

    /// # Safety
    ///
    /// The caller holds the lock; the waiter is in no queue, and stays where it is until it was taken
    /// out.
    unsafe fn push(&self, waiter: &Waiter) {
        let last = self.last.load(Relaxed).cast_const();
        waiter.prev.set(last);
        waiter.next.set(ptr::null());
        self.last.store(ptr::from_ref(waiter).cast_mut(), Relaxed);
        // SAFETY: whoever is in the queue stays where it is.
        match unsafe { last.as_ref() } {
            None => self.first.store(ptr::from_ref(waiter).cast_mut(), Relaxed),
            Some(last) => last.next.set(waiter),
        }
    }

    /// # Safety
    ///
    /// The caller holds the lock; the waiter is in this queue.
    unsafe fn remove(&self, waiter: &Waiter) {
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        // SAFETY: neighbours in the queue stay where they are.
        match unsafe { prev.as_ref() } {
            None => self.first.store(next.cast_mut(), Relaxed),
            Some(prev) => prev.next.set(next),
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            None => self.last.store(prev.cast_mut(), Relaxed),
            Some(next) => next.prev.set(prev),
        }
    }
}

impl Waiter {
    fn new(n: u64) -> Waiter {
        Waiter {
            // More than any limit is never granted.
            units: n.min(2 * Budget::LIMIT_MAX) as i64,
            state: AtomicU32::new(WAITING),
            generation: Cell::new(0),
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            task: UnsafeCell::new(None),
        }
    }

    fn is_granted(&self) -> bool {
        // Acquire: pairs with the Release in `grant_first`.
        self.state.load(AcquireOrder) == GRANTED
    }

    /// Whether it is in the queue of this process, if it has not been granted.
    fn is_of_this_process(&self) -> bool {
        self.generation.get() == Host::generation()
    }
}

impl Budget {
    pub(super) fn wait(&self, n: u64, timeout: Option<Duration>) -> Result<(), Exhausted> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if self.try_acquire(n).is_ok() {
            return Ok(());
        }
        let _errno = errno::save();
        let waiter = Waiter::new(n);
        // SAFETY: it stays on this stack until it was granted or taken out.
        if unsafe { self.enqueue(&waiter, None) } {
            return Ok(());
        }
        while !waiter.is_granted() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return self.cancel(&waiter);
            }
            Host::wait(&waiter.state, WAITING, left);
        }
        Ok(())
    }

    /// Puts a waiter into the queue, unless what it wants is there after all. Whether it was.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue of this process, and stays where it is until it was granted or cancelled.
    unsafe fn enqueue(&self, waiter: &Waiter, task: Option<Waker>) -> bool {
        let guard = self.lock();
        let excess = self.to_shared_mode(&guard);
        if excess > 0 {
            self.unlock(guard);
            self.panic_over_released(excess);
        }
        waiter.state.store(WAITING, Relaxed);
        waiter.generation.set(Host::generation());
        // SAFETY: a waiter in no queue is the caller's alone.
        unsafe { *waiter.task.get() = task };
        let is_there = loop {
            let now = self.pool.load();
            let is_there = !now.is_queued() && now.units() >= waiter.units;
            let new = if is_there { now.with_units(-waiter.units) } else { now.queued(true) };
            if self.pool.exchange(now, new) {
                break is_there;
            }
        };
        if !is_there {
            // SAFETY: by this function's own contract; the lock is held.
            unsafe { self.queue.push(waiter) };
        }
        self.unlock(guard);
        is_there
    }

    /// Takes a waiter out of the queue. `Ok` if it had been granted what it wanted.
    fn cancel(&self, waiter: &Waiter) -> Result<(), Exhausted> {
        let guard = self.lock();
        let mut granted = waiter.is_granted();
        // While others wait nothing is free.
        let mut available = 0;
        if !granted && waiter.is_of_this_process() {
            // SAFETY: the lock is held; who was queued in this process and not granted is in the queue.
            unsafe { self.queue.remove(waiter) };
            if self.queue.first().is_null() {
                // Whoever released meanwhile left the units to who holds the lock: so they may be there after
                // all, and then this one is not refused.
                let before = self.pool.update(|now| match now.units() >= waiter.units {
                    true => now.with_units(-waiter.units).queued(false),
                    false => now.queued(false),
                });
                granted = before.units() >= waiter.units;
                available = before.queued(false).available();
            }
        }
        self.unlock(guard);
        if granted { Ok(()) } else { Err(Exhausted { available }) }
    }

    /// Lets the lock go, and looks after what others left to its holder.
    pub(super) fn unlock(&self, guard: Guard<'_>) {
        drop(guard);
        // SeqCst: pairs with the fence in `serve`. Either this look sees the pool of who found the
        // lock held, or that one finds it free.
        memory_fence(SeqCst);
        if self.pool.load().is_queued() {
            self.serve();
        }
    }

    /// Gives units to those who wait, as long as there are enough for the first. Never waits.
    #[cold]
    pub(super) fn serve(&self) {
        let _errno = errno::save();
        loop {
            memory_fence(SeqCst);
            // Whoever holds the lock looks at the pool after it has let go.
            let Some(guard) = self.try_lock() else { return };
            let (grant, seen) = self.grant_first(&guard);
            drop(guard);
            match grant {
                Some(grant) => {
                    // A task's own code, which may panic: then the others are served all the same.
                    let rest = ServeOnDrop(self);
                    grant.wake();
                    core::mem::forget(rest);
                }
                None => {
                    memory_fence(SeqCst);
                    if self.pool.load() == seen {
                        return;
                    }
                }
            }
        }
    }

    /// Grants the first what it waits for, if that is there; and what the pool was, if it is not.
    fn grant_first(&self, _guard: &Guard<'_>) -> (Option<Grant>, PoolState) {
        loop {
            let now = self.pool.load();
            // SAFETY: under the lock, who is in the queue stays there and where it is.
            let Some(first) = (unsafe { self.queue.first().as_ref() }) else { return (None, now) };
            if now.units() < first.units {
                return (None, now);
            }
            let waits_another = !first.next.get().is_null();
            if self.pool.exchange(now, now.with_units(-first.units).queued(waits_another)) {
                // SAFETY: the lock is held, and it is the first of this queue.
                unsafe { self.queue.remove(first) };
                // SAFETY: the lock is held, and its owner has not seen the grant yet.
                let task = unsafe { (*first.task.get()).take() };
                let state = &raw const first.state;
                // Release: pairs with the Acquire in `is_granted`. It may be gone after this.
                first.state.store(GRANTED, Release);
                return (Some(task.map_or(Grant::Thread(state), Grant::Task)), now);
            }
        }
    }

    /// Empties the queue of threads that a fork did not copy.
    pub(super) fn forget_waiters(&self, _guard: &Guard<'_>) {
        self.queue.first.store(ptr::null_mut(), Relaxed);
        self.queue.last.store(ptr::null_mut(), Relaxed);
        if self.pool.load().is_queued() {
            self.pool.update(|now| now.queued(false));
        }
    }
}

/// Serves those who wait when it is dropped.
struct ServeOnDrop<'a>(&'a Budget);

impl Drop for ServeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

/// A future that acquires units; see [`Budget::acquire_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<'a> {
    budget: &'a Budget,
    n: u64,
    waiter: Waiter,
    /// Whether the waiter was put into the queue and its units have not been handed out.
    is_queued: bool,
    _pinned: PhantomPinned,
}

// SAFETY: nothing in it belongs to a thread; what others reach through the queue they change under the
// budget's lock.
unsafe impl Send for Acquire<'_> {}
// SAFETY: a shared reference to it gives access to nothing.
unsafe impl Sync for Acquire<'_> {}

impl<'a> Acquire<'a> {
    pub(super) fn new(budget: &'a Budget, n: u64) -> Acquire<'a> {
        let waiter = Waiter::new(n);
        Acquire { budget, n, waiter, is_queued: false, _pinned: PhantomPinned }
    }

    /// Whether the units are there; if not, `task` is woken when they are.
    fn is_ready(&mut self, task: &Waker) -> bool {
        if self.is_queued && self.waiter.is_granted() {
            return true;
        }
        if self.is_queued && self.waiter.is_of_this_process() {
            let task = Some(task.clone());
            let guard = self.budget.lock();
            let granted = self.waiter.is_granted();
            // SAFETY: the lock is held.
            let before = unsafe { core::mem::replace(&mut *self.waiter.task.get(), task) };
            self.budget.unlock(guard);
            // A task's own code, so not under the lock.
            drop(before);
            return granted;
        }
        if self.budget.try_acquire(self.n).is_ok() {
            return true;
        }
        // SAFETY: it is pinned, in no queue of this process, and its drop cancels it.
        let is_there = unsafe { self.budget.enqueue(&self.waiter, Some(task.clone())) };
        self.is_queued = !is_there;
        is_there
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Lease<'a>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lease<'a>> {
        // SAFETY: nothing is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        if !this.is_ready(context.waker()) {
            return Poll::Pending;
        }
        this.is_queued = false;
        Poll::Ready(Lease::new(this.budget, this.n))
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if self.is_queued && self.budget.cancel(&self.waiter).is_ok() {
            self.budget.release(self.n);
        }
    }
}

impl core::fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Acquire").field("n", &self.n).finish_non_exhaustive()
    }
}
