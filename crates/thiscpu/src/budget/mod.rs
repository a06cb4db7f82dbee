//! Budgets: limits that are never exceeded and never refused wrongly.
//!
//! Slow paths save `errno`, because malloc and signal handlers must not change it.

pub(crate) mod calls;
mod close;
mod core;
pub(crate) mod credit;
mod error;
mod future;
mod lease;
mod lock;
mod over_release;
mod owned;
mod percpu_mode;
mod pool;
mod pool_ops;
pub(crate) mod queue;
mod recall;
pub(crate) mod shared_mode;
mod wait;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::core::countable;
pub use self::core::{Budget, GATE_AT};
pub use self::credit::SCALE;
pub use self::error::{AcquireError, TryAcquireError};
pub use self::future::{Acquire, AcquireOwned};
pub use self::lease::{Lease, Reserve};
pub use self::owned::OwnedLease;
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
    /// [`Exhausted`](TryAcquireError::Exhausted) if fewer than `n` units were available, or if they
    /// are promised to a waiter; [`Closed`](TryAcquireError::Closed) if the budget is closed.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong, or if a recall needs a fence and a sandbox now denies it; see
    /// [`Counter::sum`](crate::Counter::sum).
    #[inline(always)]
    pub fn try_acquire(&self, n: u64) -> Result<(), TryAcquireError> {
        // `LIMIT_MAX` times `SCALE` is 2^62, so the product in `take_credit` does not overflow.
        if n <= Self::LIMIT_MAX && self.take_credit(n as i64) == Outcome::Committed {
            return Ok(());
        }
        self.try_acquire_shared(n)
    }

    /// Acquires as many units as are available, at most `n`, and returns how many.
    ///
    /// Returns 0 if no unit is available, or if the budget is closed. Costs as much as
    /// [`try_acquire`](Budget::try_acquire).
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn try_acquire_up_to(&self, n: u64) -> u64 {
        if n <= Self::LIMIT_MAX && self.take_credit(n as i64) == Outcome::Committed {
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
    /// A release of more units than are held is a bug of its caller, but it fails no call: see
    /// [`over_released`](Budget::over_released). More than [`LIMIT_MAX`](Budget::LIMIT_MAX) units
    /// are not released at all.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong. If a task's waker panics, the panic goes on after all waiters
    /// were served. Calls other than `release` and `close` drop it.
    #[inline(always)]
    pub fn release(&self, n: u64) {
        if n > Self::LIMIT_MAX || self.give_credit(n as i64) != Outcome::Committed {
            self.release_shared(n);
        }
    }

    /// Takes `units` from this lane's credit.
    #[inline(always)]
    fn take_credit(&self, units: i64) -> Outcome {
        // SAFETY: this is the gate of a budget. If it is open, it leads to an item of 32 bytes in
        // each lane. Only the drop frees the item, and `self` is borrowed.
        unsafe { Processor::add_up(self.gate.word(), units * SCALE) }
    }

    /// Gives `units` back to this lane's credit, unless it has plenty.
    #[inline(always)]
    fn give_credit(&self, units: i64) -> Outcome {
        // SAFETY: the gate leads to an item of 32 bytes in each lane, if it is open. `self` is
        // borrowed, so no drop frees the item.
        unsafe { Processor::add_direct(self.gate.word(), -units * SCALE) }
    }

    /// Acquires `n` units as a lease, which releases them when dropped.
    ///
    /// Costs as much as [`try_acquire`](Budget::try_acquire).
    ///
    /// # Errors
    ///
    /// [`TryAcquireError`] if `try_acquire` would be refused.
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn lease(&self, n: u64) -> Result<Lease<'_>, TryAcquireError> {
        self.try_acquire(n).map(|()| Lease::new(self, n))
    }

    /// Sets `n` units aside; only the owner of the returned reserve may use them.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError`] if [`try_acquire`](Budget::try_acquire) would be refused.
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn try_reserve(&self, n: u64) -> Result<Reserve<'_>, TryAcquireError> {
        self.lease(n).map(Reserve::new)
    }

    /// Acquires `n` units; blocks until they are available, or the budget is closed.
    ///
    /// First come, first served: while anybody waits, released units are promised to the first
    /// waiter, no matter how many it needs. A request above the limit blocks until the limit is
    /// raised, and blocks everyone queued behind it.
    ///
    /// Costs one section if the units are available and nobody waits. Otherwise it costs a recall
    /// and a lock before the thread sleeps. Must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] if the budget is [closed](Budget::close), now or while the call waits.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Budget::try_acquire).
    pub fn acquire(&self, n: u64) -> Result<(), AcquireError> {
        self.wait(n, || None).map_err(|error| match error {
            TryAcquireError::Closed => AcquireError(()),
            TryAcquireError::Exhausted { .. } => unreachable!("this wait has no deadline"),
        })
    }

    /// Acquires `n` units; blocks until they are available, for at most `timeout`.
    ///
    /// Otherwise like [`acquire`](Budget::acquire).
    ///
    /// # Errors
    ///
    /// [`Exhausted`](TryAcquireError::Exhausted) if the time is over,
    /// [`Closed`](TryAcquireError::Closed) if the budget is closed. Then nothing is acquired.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Budget::try_acquire).
    pub fn acquire_timeout(&self, n: u64, timeout: Duration) -> Result<(), TryAcquireError> {
        self.wait(n, || Instant::now().checked_add(timeout))
    }

    /// Acquires `n` units; blocks until they are available, until `deadline` at most.
    ///
    /// After the deadline it costs what [`try_acquire`](Budget::try_acquire) costs, or a little
    /// more. Otherwise like [`acquire`](Budget::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Budget::acquire_timeout).
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn acquire_deadline(&self, n: u64, deadline: Instant) -> Result<(), TryAcquireError> {
        self.wait(n, || Some(deadline))
    }

    /// Acquires `n` units as a future, for any executor.
    ///
    /// Resolves to a [`Lease`], or to an [`AcquireError`] if the budget is closed. The future joins
    /// the queue of [`acquire`](Budget::acquire) when first polled, and leaves it when dropped;
    /// units that were granted to it meanwhile are released then. If it is polled again after it
    /// has resolved, it acquires again.
    ///
    /// A poll may wait for the budget's lock, but never for units. A thread can call
    /// [`wait`](Acquire::wait) or [`wait_deadline`](Acquire::wait_deadline) instead.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// use thiscpu::{AcquireError, Budget};
    ///
    /// async fn with_a_connection(connections: &Budget) -> Result<u64, AcquireError> {
    ///     let lease = connections.acquire_async(1).await?;
    ///     Ok(lease.units())
    /// }
    /// # let budget = Budget::new(1);
    /// # let poll = pin!(with_a_connection(&budget)).poll(&mut Context::from_waker(Waker::noop()));
    /// # assert_eq!(poll, Poll::Ready(Ok(1)));
    /// ```
    pub fn acquire_async(&self, n: u64) -> Acquire<'_> {
        Acquire::new(self, n)
    }

    /// Acquires `n` units as a lease that owns a reference to this budget.
    ///
    /// Costs as much as [`try_acquire`](Budget::try_acquire), and a reference count; see
    /// [`OwnedLease`].
    ///
    /// # Errors
    ///
    /// [`TryAcquireError`] if `try_acquire` would be refused. The reference count is not touched
    /// then.
    ///
    /// # Panics
    ///
    /// Under the conditions of `try_acquire`.
    pub fn try_acquire_owned(self: &Arc<Self>, n: u64) -> Result<OwnedLease, TryAcquireError> {
        self.try_acquire(n)?;
        Ok(OwnedLease::new(Arc::clone(self), n))
    }

    /// Acquires `n` units as a future, for any executor. Resolves to an [`OwnedLease`].
    ///
    /// Like [`acquire_async`](Budget::acquire_async), but the future and the lease own references
    /// to this budget, so both are `'static`. For a deadline in async code, use the timer of your
    /// executor: dropping the future loses nothing. Threads call
    /// [`wait_deadline`](AcquireOwned::wait_deadline).
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// use std::sync::Arc;
    /// use thiscpu::{AcquireError, Budget, OwnedLease};
    ///
    /// async fn with_memory(memory: Arc<Budget>) -> Result<OwnedLease, AcquireError> {
    ///     memory.acquire_owned(70).await
    /// }
    /// # let memory = Arc::new(Budget::new(100));
    /// # let mut context = Context::from_waker(Waker::noop());
    /// # let Poll::Ready(lease) = pin!(with_memory(memory.clone())).poll(&mut context) else {
    /// #     panic!("units are available")
    /// # };
    /// # assert_eq!((lease.as_ref().unwrap().units(), memory.acquired()), (70, 70));
    /// # drop(lease);
    /// # assert_eq!(memory.acquired(), 0);
    /// ```
    pub fn acquire_owned(self: &Arc<Self>, n: u64) -> AcquireOwned {
        AcquireOwned::new(Arc::clone(self), n)
    }

    /// Returns how many units are available, at one instant of this call; 0 while anybody waits.
    ///
    /// After [`close`](Budget::close) it returns how many units nobody holds.
    ///
    /// Costs a recall in per-CPU mode; in shared mode a lock and a load. After a recall the budget
    /// returns to per-CPU mode only if units are plentiful. Therefore do not poll a hot budget.
    /// Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Budget::try_acquire).
    pub fn available(&self) -> u64 {
        self.with_all_units(|pool, limit| match pool.is_queued() {
            true => 0,
            false => pool.units().clamp(0, limit) as u64,
        })
    }

    /// Returns how many units are held, at one instant of this call.
    ///
    /// Costs and waits as [`available`](Budget::available) does, and panics under its conditions.
    pub fn acquired(&self) -> u64 {
        self.with_all_units(|pool, limit| (limit - pool.units()).max(0) as u64)
    }

    /// Returns how many units were released although no caller held them. One load.
    ///
    /// Such a release is a bug of its caller, for example one that releases a lease's units by
    /// hand. No call fails or panics because of it. The budget finds the bug when more units are
    /// available than the limit allows. Then it discards the excess and adds it to this number. For
    /// each budget, the first excess is also reported on standard error.
    ///
    /// The excess may be found late. Units that were wrongly released count as available while
    /// others hold as many. In per-CPU mode they may be in a lane until the next recall, such as
    /// that of [`available`](Budget::available). Until then the limit can be exceeded. If callers
    /// have released `e` units too many, and this method returns `d`, at most `limit + e - d` units
    /// are held. When all units have been released and the excess was found, `d` is `e`, and the
    /// budget keeps its limit again.
    ///
    /// The number stops at `u64::MAX`. May be called from a signal handler.
    ///
    /// ```
    /// use thiscpu::Budget;
    ///
    /// let budget = Budget::new(10);
    /// budget.try_acquire(4)?;
    /// budget.release(4);
    /// budget.release(4); // a bug
    /// assert_eq!((budget.available(), budget.over_released()), (10, 4));
    /// # Ok::<(), thiscpu::TryAcquireError>(())
    /// ```
    pub fn over_released(&self) -> u64 {
        // Relaxed: a statistic, which orders nothing.
        self.pool.over_released.load(crate::sys::atomic::Ordering::Relaxed)
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
