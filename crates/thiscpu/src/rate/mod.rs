//! Rates: limits on units over time that are never exceeded and never refused wrongly.
//!
//! Slow paths save `errno`, because malloc must not change it.

mod core;
mod error;
mod lock;
mod pace;
mod percpu_mode;
mod pool;
mod recall;
mod request;
mod shared_mode;
mod stamps;
mod terms;
mod wait;
mod window;

use std::future::Future;
use std::time::{Duration, Instant};

pub use self::core::Rate;
pub use self::error::{RateConfigError, RateError};
pub use self::pace::Pace;
use self::terms::Terms;
pub use self::window::RateWindow;
use crate::budget::credit::SCALE;
use crate::section::{Outcome, Processor, Sections as _};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::errno;

impl Rate {
    /// Acquires `n` units, or none. Never waits for units.
    ///
    /// In per-CPU mode it costs one section: no clock, no atomic instruction, no fence, and a write
    /// to one cache line of this CPU. In shared mode (near the limit, or with a small burst) it
    /// costs a clock read and one compare-exchange; a refusal costs a clock read. Before it refuses
    /// in per-CPU mode, the call waits for a recall: one fence.
    ///
    /// May be called after `fork`. Must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// - [`Exceeded`](RateError::Exceeded) if fewer than `n` units were available, or if they are
    ///   promised to a waiter; it says how many, and after what time to try again.
    /// - [`AboveBurst`](RateError::AboveBurst) if `n` is above the burst.
    /// - [`ZeroUnits`](RateError::ZeroUnits) if `n` is 0.
    /// - [`Closed`](RateError::Closed) if the rate is closed.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong, or if a recall needs a fence and a sandbox now denies it; see
    /// [`Counter::sum`](crate::Counter::sum).
    #[inline(always)]
    pub fn try_acquire(&self, n: u64) -> Result<(), RateError> {
        if self.take_credit(n) {
            return Ok(());
        }
        self.try_acquire_shared(n)
    }

    /// Acquires as many units as are available, at most `n`, and returns how many.
    ///
    /// Returns 0 if no unit is available, if `n` is 0, or if the rate is closed. Costs as much as
    /// [`try_acquire`](Rate::try_acquire).
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    ///
    /// ```
    /// use thiscpu::{Pace, Rate};
    ///
    /// let bytes = Rate::new(Pace::per_minute(1), 1500);
    /// assert_eq!(bytes.try_acquire_up_to(1000), 1000);
    /// assert_eq!(bytes.try_acquire_up_to(1000), 500);
    /// ```
    pub fn try_acquire_up_to(&self, n: u64) -> u64 {
        if self.take_credit(n) {
            return n;
        }
        self.acquire_up_to(n)
    }

    /// Takes `n` units from this lane's credit; returns whether that worked.
    #[inline(always)]
    fn take_credit(&self, n: u64) -> bool {
        // 0 becomes the largest number. `BURST_MAX` times `SCALE` does not overflow.
        n.wrapping_sub(1) < Self::BURST_MAX
            // SAFETY: this is the gate of a rate. If it is open, it leads to an item of 32 bytes in
            // each lane. Only the drop frees the item, and `self` is borrowed.
            && unsafe { Processor::add_up(self.gate.word(), n as i64 * SCALE) }
                == Outcome::Committed
    }

    /// Acquires `n` units; blocks until they are available, or the rate is closed.
    ///
    /// First come, first served: while anybody waits, units are promised to the first waiter, no
    /// matter how many it needs. The thread sleeps until its units will be there.
    ///
    /// Costs as much as [`try_acquire`](Rate::try_acquire) if the units are available and nobody
    /// waits. Otherwise it costs a recall and a lock before the thread sleeps. Must not be called
    /// from a signal handler.
    ///
    /// # Errors
    ///
    /// [`RateError`], but not `Exceeded`: if `n` is 0 or above the burst, now or while the call
    /// waits, or if the rate is [closed](Rate::close).
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    ///
    /// ```
    /// use thiscpu::{Pace, Rate};
    ///
    /// let mails = Rate::new(Pace::per_second(1000), 1);
    /// for _ in 0..3 {
    ///     mails.acquire(1)?; // the second and the third wait for a millisecond each
    /// }
    /// # Ok::<(), thiscpu::RateError>(())
    /// ```
    pub fn acquire(&self, n: u64) -> Result<(), RateError> {
        self.wait(n, || None)
    }

    /// Acquires `n` units; blocks until they are available, for at most `timeout`.
    ///
    /// Otherwise like [`acquire`](Rate::acquire).
    ///
    /// # Errors
    ///
    /// [`Exceeded`](RateError::Exceeded) if the time is over, or an error of `acquire`. Then
    /// nothing is acquired.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    pub fn acquire_timeout(&self, n: u64, timeout: Duration) -> Result<(), RateError> {
        self.wait(n, || Instant::now().checked_add(timeout))
    }

    /// Acquires `n` units; blocks until they are available, until `deadline` at most.
    ///
    /// Otherwise like [`acquire`](Rate::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Rate::acquire_timeout).
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    pub fn acquire_deadline(&self, n: u64, deadline: Instant) -> Result<(), RateError> {
        self.wait(n, || Some(deadline))
    }

    /// Acquires `n` units as a future, for any executor. `sleep` makes its timers.
    ///
    /// With tokio, `sleep` is `tokio::time::sleep`. The future joins the queue of
    /// [`acquire`](Rate::acquire) when first polled, and leaves it when dropped; units that were
    /// granted to it meanwhile return to the rate then. A poll may wait for the rate's lock, but
    /// never for units. For a deadline, use a timeout of your executor.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Rate::acquire).
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    ///
    /// ```
    /// # use std::{future::{Future, ready}, pin::pin, task::{Context, Poll, Waker}};
    /// use thiscpu::{Pace, Rate, RateError};
    ///
    /// static MAILS: Rate = Rate::new(Pace::per_second(5), 10);
    ///
    /// async fn send_mail() -> Result<(), RateError> {
    ///     # mod tokio { pub mod time { pub use std::future::ready as sleep_; } }
    ///     # let sleep = |_| ready(());
    ///     # #[cfg(any())]
    ///     let sleep = tokio::time::sleep;
    ///     MAILS.acquire_async(1, sleep).await
    /// }
    /// # let poll = pin!(send_mail()).poll(&mut Context::from_waker(Waker::noop()));
    /// # assert_eq!(poll, Poll::Ready(Ok(())));
    /// ```
    pub fn acquire_async<S: Future<Output = ()>>(
        &self,
        n: u64,
        sleep: impl FnMut(Duration) -> S,
    ) -> impl Future<Output = Result<(), RateError>> {
        self.wait_async(n, sleep)
    }

    /// Returns how many units are available, at one instant of this call; 0 while anybody waits.
    ///
    /// Returns 0 after [`close`](Rate::close). Costs a recall in per-CPU mode; in shared mode a
    /// lock and a clock read. After a recall the rate returns to per-CPU mode only if units are
    /// plentiful. Therefore do not poll a hot rate. Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    pub fn available(&self) -> u64 {
        self.in_shared_mode(true, |_| {
            let look = self.look();
            if look.state.is_open() { look.terms.units(look.level) } else { 0 }
        })
    }

    /// Returns the burst. A few loads.
    pub fn burst(&self) -> u64 {
        self.shared.pool.load(&self.slots).1.burst
    }

    /// Returns the most units that lanes hold: the difference to an exact refusal.
    ///
    /// A few loads. It is 0 if the rate is always in shared mode.
    pub fn share(&self) -> u64 {
        self.shared.pool.load(&self.slots).1.share
    }

    /// Changes the pace, at one instant of this call. The rate keeps the units that it has.
    ///
    /// Waiters get new times. Costs a recall in per-CPU mode. Must not be called from a signal
    /// handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    pub fn set_pace(&self, pace: Pace) {
        self.change_terms(|terms| Ok(terms.with_pace(pace))).expect("any pace fits any burst");
    }

    /// Changes the burst, at one instant of this call. Units above the new burst are lost.
    ///
    /// A higher burst brings no units at once. The lanes' share becomes an eighth of the burst, or
    /// what [`set_share`](Rate::set_share) has set if that is less. Waiters for more than the burst
    /// get an error. Costs a recall in per-CPU mode. Must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// [`RateConfigError`] if `burst` is 0 or above [`BURST_MAX`](Rate::BURST_MAX).
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    pub fn set_burst(&self, burst: u64) -> Result<(), RateConfigError> {
        // Relaxed: it changes under the lock, which `change_terms` holds.
        self.change_terms(|terms| terms.with_burst(burst, self.share_max.load(Relaxed)))
    }

    /// Changes the most units that lanes hold, at one instant of this call.
    ///
    /// With 0 the rate stays in shared mode. Costs a recall in per-CPU mode. Must not be called
    /// from a signal handler.
    ///
    /// # Errors
    ///
    /// [`RateConfigError::ShareTooLarge`] if `share` is above an eighth of the burst.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire).
    pub fn set_share(&self, share: u64) -> Result<(), RateConfigError> {
        self.change_terms(|terms| {
            let changed = terms.with_share(share)?;
            // Relaxed: it changes under the lock, which is held.
            self.share_max.store(share, Relaxed);
            Ok(changed)
        })
    }

    /// Changes the terms to those that `change` makes of the old ones.
    fn change_terms(
        &self,
        change: impl FnOnce(&Terms) -> Result<Terms, RateConfigError>,
    ) -> Result<(), RateConfigError> {
        self.in_shared_mode(true, |_| {
            let (_, terms) = self.shared.pool.load(&self.slots);
            change(&terms).map(|terms| self.set_terms(&terms))
        })?;
        let _errno = errno::save();
        self.nudge_queue();
        Ok(())
    }

    /// Closes the rate: ends all waits, and refuses all later acquires.
    ///
    /// Each thread and task that waits is woken with an error. A rate cannot be opened again.
    /// Closing it twice does nothing. Costs a recall in per-CPU mode, and runs the waker of each
    /// task that waits. Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Rate::try_acquire). A panic of a waker is dropped.
    pub fn close(&self) {
        self.in_shared_mode(false, |_| {
            loop {
                let (state, _) = self.shared.pool.load(&self.slots);
                if self.shared.pool.exchange(state, state.closed()) {
                    break;
                }
            }
        });
        let _errno = errno::save();
        drop(self.serve_queue());
    }

    /// Returns whether the rate is closed. One load.
    pub fn is_closed(&self) -> bool {
        self.shared.pool.load_mode().is_closed()
    }

    /// Returns how many threads and tasks wait for units. One load.
    ///
    /// The number may be out of date when it is returned. A child of `fork` starts at 0.
    pub fn waiters(&self) -> usize {
        if self.is_recovered() { self.shared.queue.len() } else { 0 }
    }
}
