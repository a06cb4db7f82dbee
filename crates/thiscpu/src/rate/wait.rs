//! Waiting for units, first come, first served.
//!
//! While there are waiters the rate is in shared mode, and its pool is marked as queued: its units
//! are promised to the first waiter. Nobody releases units to a rate, so waiters sleep until the
//! time at which their units will be there. Whoever wakes *serves*: it grants units to the first
//! waiters, as long as they suffice, under the lock. So a waiter that is slow to wake holds up
//! nobody: each waiter behind it has a time of its own.
//!
//! The first waiter's time is exact; that of another one may be too late if one before it has left
//! the queue. A waiter is *nudged*, to look again, when it becomes the first. All are nudged when
//! the terms change. A nudge changes the word that the waiter sleeps on, under the lock, so it is
//! not lost.

use std::task::Waker;
use std::time::{Duration, Instant};
use std::{mem, ptr};

use super::core::{Look, Rate};
use super::error::RateError;
use crate::budget::queue::{State, Waiter, Wakeup};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::lock::Guard;
use crate::sys::{errno, waker};

/// What a waiter does next: nothing if it has its units, or else sleep for that long.
pub(super) type Turn = Option<Duration>;

impl Rate {
    /// Acquires `n` units; waits until `deadline()`, which is called only before a wait.
    #[inline]
    pub(super) fn wait(
        &self,
        n: u64,
        deadline: impl FnOnce() -> Option<Instant>,
    ) -> Result<(), RateError> {
        match self.try_acquire(n) {
            Err(RateError::Exceeded { .. }) => self.wait_in_queue(n, deadline()),
            result => result,
        }
    }

    #[cold]
    fn wait_in_queue(&self, n: u64, deadline: Option<Instant>) -> Result<(), RateError> {
        let _errno = errno::save();
        let waiter = Waiter::new(n as i64);
        // SAFETY: the waiter is new, and stays on this stack until its wait has ended or it has
        // left the queue.
        let mut turn = unsafe { self.enqueue(&waiter, None) }?;
        while let Some(delay) = turn {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return self.leave_queue(&waiter);
            }
            waiter.sleep(Some(left.map_or(delay, |left| left.min(delay))));
            turn = self.serve(&waiter, None)?;
        }
        Ok(())
    }

    /// Acquires the waiter's units, or queues it.
    ///
    /// # Errors
    ///
    /// If it can never get them. Then the waiter is in no queue.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue of this process, and stays where it is until its wait has ended or
    /// it has left the queue.
    pub(super) unsafe fn enqueue(
        &self,
        waiter: &Waiter,
        task: Option<Waker>,
    ) -> Result<Turn, RateError> {
        let n = waiter.units as u64;
        let guard = self.lock();
        self.to_shared_mode(&guard);
        // SAFETY: the caller guarantees that the waiter is in no queue of this process.
        let old = unsafe { waiter.prepare(task) };
        let turn = loop {
            let look = self.look();
            if look.state.is_closed() {
                break Err(RateError::Closed);
            }
            if let Err(error) = look.check_request(n) {
                break Err(error);
            }
            let quanta = look.terms.quanta(n);
            if look.state.is_open() && look.level >= quanta {
                if self.shared.pool.exchange(look.state, look.taken(quanta)) {
                    break Ok(None);
                }
            } else if self.shared.pool.exchange(look.state, look.state.shared(true)) {
                self.change_queued(n as i64);
                // SAFETY: the lock is held. The caller guarantees that the waiter is in no queue
                // and stays where it is until its wait has ended, or it has left the queue.
                unsafe { self.shared.queue.push(waiter) };
                break Ok(Some(self.delay(&look, waiter)));
            }
        };
        drop(guard);
        waker::drop_caught(old);
        turn
    }

    /// Grants what the pool has, and returns what the waiter does next.
    ///
    /// # Errors
    ///
    /// If the waiter can never get its units. Then it is in no queue.
    pub(super) fn serve(&self, waiter: &Waiter, task: Option<Waker>) -> Result<Turn, RateError> {
        let guard = self.serve_queue();
        let turn = match waiter.state() {
            State::Granted => Ok(None),
            State::Closed => Err(self.end_of_wait(waiter)),
            State::Waiting | State::Nudged => {
                waiter.rearm();
                Ok(Some(self.delay(&self.look(), waiter)))
            }
        };
        // SAFETY: the lock is held.
        let old = unsafe { waiter.replace_task(task) };
        drop(guard);
        waker::drop_caught(old);
        turn
    }

    /// Ends waits in order, until the first needs more than there is. Returns holding the lock.
    ///
    /// Wakes them without the lock. A waker that panics keeps no other from being called.
    pub(super) fn serve_queue(&self) -> Guard<'_> {
        let mut has_ended = false;
        loop {
            let guard = self.lock();
            let mut wakeup = self.end_first_wait(&guard);
            if wakeup.is_some() {
                has_ended = true;
            } else if mem::take(&mut has_ended) {
                // SAFETY: the lock is held.
                wakeup = unsafe { self.shared.queue.nudge_first() };
            }
            let Some(wakeup) = wakeup else { return guard };
            drop(guard);
            wakeup.wake_caught();
        }
    }

    /// Ends the wait of the first waiter, if it can get its units, or never can.
    fn end_first_wait(&self, _guard: &Guard<'_>) -> Option<Wakeup> {
        loop {
            // SAFETY: the first pointer is null or a queued waiter. Waiters stay in the queue, and
            // where they are, while the lock is held.
            let first = unsafe { self.shared.queue.first().as_ref() }?;
            let look = self.look();
            let quanta = look.terms.quanta(first.units as u64);
            let end = if look.state.is_closed() || first.units as u64 > look.terms.burst {
                let rest = look.state.shared(!first.is_last());
                self.shared.pool.exchange(look.state, rest).then_some(State::Closed)
            } else if look.level < quanta {
                return None;
            } else {
                let rest = look.taken(quanta).shared(!first.is_last());
                self.shared.pool.exchange(look.state, rest).then_some(State::Granted)
            };
            let Some(end) = end else { continue };
            self.change_queued(-first.units);
            // SAFETY: `_guard` proves that the lock is held, and `first` was read under it.
            return Some(unsafe { self.shared.queue.end_wait(ptr::from_ref(first), end) });
        }
    }

    /// Ends a wait. Returns `Ok` if the units had been granted, or are there now.
    pub(super) fn leave_queue(&self, waiter: &Waiter) -> Result<(), RateError> {
        let guard = self.serve_queue();
        let state = waiter.state();
        let is_queued = matches!(state, State::Waiting | State::Nudged);
        let mut nudged = None;
        let mut refusal = None;
        if is_queued && waiter.is_of_this_process() {
            let look = self.look();
            let is_first = ptr::eq(self.shared.queue.first(), waiter);
            let missing = (look.terms.quanta(waiter.units as u64) - look.level).max(1);
            refusal = Some(RateError::Exceeded {
                // While others wait nothing is available.
                available: if is_first { look.terms.units(look.level) } else { 0 },
                retry_after: look.terms.time_to_earn(missing),
            });
            self.change_queued(-waiter.units);
            // SAFETY: the lock is held. A waiter that was queued in this process, and whose wait
            // has not ended, is still in the queue.
            unsafe { self.shared.queue.remove(waiter) };
            if self.shared.queue.first().is_null() {
                self.leave_queued_mode();
            }
            // SAFETY: the lock is held.
            nudged = unsafe { self.shared.queue.nudge_first() };
        }
        drop(guard);
        if let Some(first) = nudged {
            first.wake_caught();
        }
        match state {
            State::Granted => Ok(()),
            State::Closed => Err(self.end_of_wait(waiter)),
            State::Waiting | State::Nudged => Err(refusal.unwrap_or(RateError::Closed)),
        }
    }

    /// Marks the pool as open to any caller. The caller holds the lock, and the queue is empty.
    pub(super) fn leave_queued_mode(&self) {
        loop {
            let (state, _) = self.shared.pool.load(&self.slots);
            if !state.is_queued() || self.shared.pool.exchange(state, state.shared(false)) {
                return;
            }
        }
    }

    /// Tells all waiters to look again, after the terms or the units have changed.
    pub(super) fn nudge_queue(&self) {
        let guard = self.lock();
        // SAFETY: the lock is held.
        let wakeups = unsafe { self.shared.queue.nudge_all() };
        drop(guard);
        wakeups.into_iter().for_each(Wakeup::wake_caught);
    }

    /// Returns the units of a wait that has ended to the pool, because nobody wants them.
    pub(super) fn give_back(&self, n: u64) {
        let guard = self.lock();
        loop {
            let look = self.look();
            let cap = match look.state.is_shared() {
                true => look.terms.burst,
                false => look.terms.burst - look.terms.share,
            };
            let level = (look.level + look.terms.quanta(n)).min(look.terms.quanta(cap));
            let origin = look.terms.origin(look.time, level);
            let new = look.state.next_epoch().with_origin(origin);
            if self.shared.pool.exchange(look.state, new) {
                break;
            }
        }
        drop(guard);
        self.nudge_queue();
    }

    /// Returns why a wait has ended without units.
    fn end_of_wait(&self, waiter: &Waiter) -> RateError {
        let (state, terms) = self.shared.pool.load(&self.slots);
        match !state.is_closed() && waiter.units as u64 > terms.burst {
            true => RateError::AboveBurst { burst: terms.burst },
            false => RateError::Closed,
        }
    }

    /// Returns how long a waiter sleeps. The caller holds the lock.
    ///
    /// For the first waiter, until its units are there. For another one, until the units of all
    /// waiters are there. When that one was queued, these were those before it and its own.
    fn delay(&self, look: &Look, waiter: &Waiter) -> Duration {
        let is_first = ptr::eq(self.shared.queue.first(), waiter);
        // Relaxed: it changes under the lock.
        let units = if is_first { waiter.units as u64 } else { self.loan.queued.load(Relaxed) };
        // The sum of many waiters may be large; a sleep may end too early.
        let quanta = look.terms.quanta(units.min(2 * Self::BURST_MAX));
        look.terms.time_to_earn((quanta - look.level).max(1))
    }

    /// Changes the number of units that waiters want. The caller holds the lock.
    fn change_queued(&self, units: i64) {
        // Relaxed: it changes under the lock; `promised` reads it as a figure.
        let queued = self.loan.queued.load(Relaxed).wrapping_add_signed(units);
        self.loan.queued.store(queued, Relaxed);
    }
}
