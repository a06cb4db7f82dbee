//! Budgets: limits that are never exceeded and never refused wrongly.
//!
//! Slow paths save `errno`, because malloc and signal handlers must not change it.

mod core;
mod credit;
mod lease;
mod lock;
mod percpu_mode;
mod pool;
mod pool_ops;
mod queue;
mod recall;
mod shared_mode;
mod wait;

use std::time::Duration;

use self::core::countable;
pub use self::core::{Budget, Exhausted, GATE_AT};
pub use self::credit::SCALE;
pub use self::lease::{Lease, Reserve};
pub use self::wait::Acquire;
use crate::section::{Outcome, Processor, Sections as _};

impl Budget {
    /// Acquires `n` units, or none. Never waits for units.
    ///
    /// In per-CPU mode it costs one section: no atomic instruction, no fence, and a write to one
    /// cache line of this CPU. In shared mode (near the limit, or with a small limit) it costs one
    /// compare-exchange. Before it refuses in per-CPU mode, the call waits for a recall: one fence.
    ///
    /// May be called after `fork`. Must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// [`Exhausted`] if fewer than `n` units were available, or if they are promised to a waiter.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong, or if a recall finds that more was released than was acquired.
    /// In the latter case the budget has discarded the excess and stays usable.
    #[inline(always)]
    pub fn try_acquire(&self, n: u64) -> Result<(), Exhausted> {
        // `LIMIT_MAX` times `SCALE` is 2^62, so the product in `add_to_taken` does not overflow.
        if n <= Self::LIMIT_MAX && self.add_to_taken(n as i64) == Outcome::Committed {
            return Ok(());
        }
        self.try_acquire_shared(n)
    }

    /// Acquires as many units as are available, at most `n`, and returns how many.
    ///
    /// Returns 0 if no unit is available. Costs as much as [`try_acquire`](Budget::try_acquire).
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn try_acquire_up_to(&self, n: u64) -> u64 {
        if n <= Self::LIMIT_MAX && self.add_to_taken(n as i64) == Outcome::Committed {
            return n;
        }
        self.acquire_up_to(n)
    }

    /// Releases `n` units, which another thread may have acquired. Never waits for units.
    ///
    /// Costs one section. In shared mode, or if this CPU's lane already holds plenty of credit, it
    /// costs one atomic addition.
    ///
    /// May be called after `fork`. May be called from a signal handler if no task waits in
    /// [`acquire_async`](Budget::acquire_async): a release that grants units to a task runs its
    /// waker.
    ///
    /// # Panics
    ///
    /// If more units are released than are held. In shared mode this call panics; in per-CPU mode
    /// the next call that makes a recall panics. The excess is discarded. If `n` alone is more than
    /// all units held, the whole release is ignored.
    ///
    /// To report the excess, the call waits for the budget's lock. So a signal handler that
    /// releases too much may deadlock: the interrupted thread may hold the lock.
    #[inline(always)]
    pub fn release(&self, n: u64) {
        if n > Self::LIMIT_MAX || self.add_to_taken(-(n as i64)) != Outcome::Committed {
            self.release_shared(n);
        }
    }

    /// Adds `units` to this lane's `taken`. A negative number gives units back.
    #[inline(always)]
    fn add_to_taken(&self, units: i64) -> Outcome {
        // SAFETY: this is the gate of a budget. If it is open, it leads to an item of 32 bytes in
        // each lane. Only the drop frees the item, and `self` is borrowed.
        unsafe { Processor::add_windowed(self.gate.word(), units * SCALE) }
    }

    /// Acquires `n` units as a lease, which releases them when dropped.
    ///
    /// Costs as much as [`try_acquire`](Budget::try_acquire).
    ///
    /// # Errors
    ///
    /// [`Exhausted`] if `try_acquire` would be refused.
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn lease(&self, n: u64) -> Result<Lease<'_>, Exhausted> {
        self.try_acquire(n).map(|()| Lease::new(self, n))
    }

    /// Sets `n` units aside; only the owner of the returned reserve may use them.
    ///
    /// # Errors
    ///
    /// [`Exhausted`] if [`try_acquire`](Budget::try_acquire) would be refused.
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn try_reserve(&self, n: u64) -> Result<Reserve<'_>, Exhausted> {
        self.lease(n).map(Reserve::new)
    }

    /// Acquires `n` units; blocks until they are available.
    ///
    /// First come, first served: while anybody waits, released units are promised to the first
    /// waiter, no matter how many it needs. A request above the limit blocks until the limit is
    /// raised, and blocks everyone queued behind it.
    ///
    /// Costs one section if the units are available and nobody waits. Otherwise it costs a recall
    /// and a lock before the thread sleeps. Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Budget::try_acquire).
    pub fn acquire(&self, n: u64) {
        self.wait(n, None)
            .unwrap_or_else(|_| unreachable!("only units end a wait without a timeout"));
    }

    /// Acquires `n` units; blocks until they are available, for at most `timeout`.
    ///
    /// Otherwise like [`acquire`](Budget::acquire).
    ///
    /// # Errors
    ///
    /// [`Exhausted`] if the time is over. Then nothing is acquired.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Budget::try_acquire).
    pub fn acquire_timeout(&self, n: u64, timeout: Duration) -> Result<(), Exhausted> {
        self.wait(n, Some(timeout))
    }

    /// Acquires `n` units as a future, for any executor.
    ///
    /// Resolves to a [`Lease`]. The future joins the queue of [`acquire`](Budget::acquire) when
    /// first polled, and leaves it when dropped. If it is polled again after it has resolved, it
    /// acquires again.
    ///
    /// A poll may wait for the budget's lock, but never for units.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// use thiscpu::Budget;
    ///
    /// async fn with_a_connection(connections: &Budget) -> u64 {
    ///     let lease = connections.acquire_async(1).await;
    ///     lease.units()
    /// }
    /// # let budget = Budget::new(1);
    /// # let poll = pin!(with_a_connection(&budget)).poll(&mut Context::from_waker(Waker::noop()));
    /// # assert_eq!(poll, Poll::Ready(1));
    /// ```
    pub fn acquire_async(&self, n: u64) -> Acquire<'_> {
        Acquire::new(self, n)
    }

    /// Returns how many units are available, at one instant of this call; 0 while anybody waits.
    ///
    /// Costs a recall in per-CPU mode; in shared mode a lock and a load. After a recall the budget
    /// returns to per-CPU mode only if units are plentiful. Therefore do not poll a hot budget.
    /// Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Budget::try_acquire).
    pub fn available(&self) -> u64 {
        self.with_all_units(|pool, limit| pool.available().min(limit as u64))
    }

    /// Returns how many units are held, at one instant of this call.
    ///
    /// Costs and waits as [`available`](Budget::available) does, and panics under its conditions.
    pub fn acquired(&self) -> u64 {
        self.with_all_units(|pool, limit| (limit - pool.units()).max(0) as u64)
    }

    /// Returns the limit. One load.
    ///
    /// While another thread changes the limit, the result is the old or the new limit. The new
    /// limit may not be in force yet.
    pub fn limit(&self) -> u64 {
        // Relaxed: the result is a number alone, which orders nothing.
        self.limit.load(crate::sys::atomic::Ordering::Relaxed) as u64
    }

    /// Changes the limit, at one instant of this call.
    ///
    /// A limit below the units held takes nothing from their holders. Then nothing is granted until
    /// enough units have been released.
    ///
    /// Costs a recall in per-CPU mode. Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`LIMIT_MAX`](Budget::LIMIT_MAX), and under the conditions of
    /// [`try_acquire`](Budget::try_acquire).
    pub fn set_limit(&self, limit: u64) {
        let limit = countable(limit).expect("a budget's limit is at most 2^56");
        self.change_limit(limit);
    }
}
