//! Closing a budget: an end for its waiters, and for all later acquires.
//!
//! A closed pool is in shared mode for good, with a mode of its own. So no fast path looks for it:
//! sections find the gate closed, and exchanges find a pool that is not open. Waiters are taken out
//! of the queue one by one, by whichever thread serves it; see [`super::lock`].

use std::panic::resume_unwind;

use super::core::Budget;
use super::pool::PoolState;
use crate::sys::errno;

impl Budget {
    /// Closes the budget: ends all waits, and refuses all later acquires.
    ///
    /// Each thread and task that waits is woken with an error, as is each acquire that comes later.
    /// Units that are held stay held, and leases stay as they are. Release them as usual: `release`
    /// works forever, so [`acquired`](Budget::acquired) tells when the last unit is back. A wait
    /// whose units were granted before this call keeps them. A [`Reserve`](super::Reserve) still
    /// hands out the units that it has set aside. A budget cannot be opened again. Closing it twice
    /// does nothing.
    ///
    /// Costs a recall in per-CPU mode, and runs the waker of each task that waits. Must not be
    /// called from a signal handler. In a child of `fork`, the budget is closed if it was closed in
    /// the parent before the fork.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`try_acquire`](Budget::try_acquire), and of
    /// [`release`](Budget::release).
    ///
    /// # Examples
    ///
    /// ```
    /// use thiscpu::{Budget, TryAcquireError};
    ///
    /// static CONNECTIONS: Budget = Budget::new(100);
    ///
    /// let connection = CONNECTIONS.lease(1)?;
    /// CONNECTIONS.close(); // accept no more
    /// assert_eq!(CONNECTIONS.try_acquire(1), Err(TryAcquireError::Closed));
    /// assert_eq!(CONNECTIONS.acquired(), 1); // still being served
    /// drop(connection);
    /// assert_eq!(CONNECTIONS.acquired(), 0);
    /// # Ok::<(), TryAcquireError>(())
    /// ```
    pub fn close(&self) {
        let _errno = errno::save();
        let guard = self.lock();
        self.to_shared_mode(&guard);
        self.pool.update(PoolState::closed);
        // This ends the waits of the queue.
        if let Some(panic) = self.unlock_and_serve(guard) {
            resume_unwind(panic);
        }
    }

    /// Returns whether the budget is closed. One load.
    ///
    /// May be called from a signal handler.
    pub fn is_closed(&self) -> bool {
        self.pool.load().is_closed()
    }

    /// Returns how many threads and tasks wait for units. One load.
    ///
    /// The number may be out of date when it is returned. A child of `fork` starts at 0. May be
    /// called from a signal handler.
    pub fn waiters(&self) -> usize {
        if self.is_recovered() { self.queue.len() } else { 0 }
    }
}
