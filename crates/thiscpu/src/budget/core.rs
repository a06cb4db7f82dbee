//! The budget's words, and the numbers that decide when it changes its mode.

use std::fmt;
use std::panic::RefUnwindSafe;

use super::calls::INITIAL_CALLS;
use super::pool::Pool;
use super::queue::Queue;
use crate::gate::Gate;
use crate::sys::atomic::{AtomicI64, AtomicU32, AtomicU64};
use crate::sys::lock::Lock;

/// A limit on a shared amount: free blocks, memory, connections, licenses.
///
/// `limit` units exist. A caller that acquires units holds them until some thread releases them. No
/// acquire makes the units held exceed the limit; only [`set_limit`] may put the limit below them.
///
/// A call is refused only if at one instant of the call fewer units were available than it
/// requested; the error says how many were. Units promised to a waiting caller are not available. A
/// budget that was [closed](Budget::close) refuses every acquire.
///
/// | released | never waits | blocks the thread | waits in a task |
/// |---|---|---|---|
/// | by hand | [`try_acquire`] | [`acquire`], [`acquire_deadline`] | |
/// | by a [`Lease`], which borrows | [`lease`] | [`Acquire::wait`] | [`acquire_async`] |
/// | by an [`OwnedLease`] | [`try_acquire_owned`] | [`AcquireOwned::wait`] | [`acquire_owned`] |
///
/// [`acquire_deadline`]: Budget::acquire_deadline
/// [`Lease`]: super::Lease
/// [`lease`]: Budget::lease
/// [`Acquire::wait`]: super::Acquire::wait
/// [`acquire_async`]: Budget::acquire_async
/// [`OwnedLease`]: super::OwnedLease
/// [`try_acquire_owned`]: Budget::try_acquire_owned
/// [`AcquireOwned::wait`]: super::AcquireOwned::wait
/// [`acquire_owned`]: Budget::acquire_owned
///
/// | | in per-CPU mode | in shared mode | may wait for |
/// |---|---|---|---|
/// | [`try_acquire`] | one section, about 1 ns | one exchange | a recall, if about to be refused |
/// | [`release`] | one section, about 1 ns | one atomic addition | nothing |
/// | [`acquire`] | one section, about 1 ns | sleeps if short | units; first come, first served |
/// | [`available`], [`acquired`] | a recall | a lock and a load | other holders of the lock |
/// | [`set_limit`], [`close`] | a recall | a lock, a few exchanges | other holders of the lock |
///
/// A recall costs one fence and a read of each lane in use.
///
/// [`try_acquire`]: Budget::try_acquire
/// [`release`]: Budget::release
/// [`acquire`]: Budget::acquire
/// [`available`]: Budget::available
/// [`acquired`]: Budget::acquired
/// [`set_limit`]: Budget::set_limit
/// [`close`]: Budget::close
///
/// # How it works
///
/// Units are in a pool, or lent to lanes as credit. An acquire takes units from the credit of its
/// own CPU. A CPU without enough credit borrows a batch from the pool. If the pool is short too, a
/// *recall* closes the gate, fences, and returns all credit to the pool.
///
/// After a recall the budget is in *shared mode*: every call is one atomic operation on the pool.
/// After an exchange that lost to another thread, a thread pauses for a microsecond or so. When
/// about 512 calls in a row have found plenty of units, the budget returns to *per-CPU mode*. If
/// recalls follow each other quickly, it returns after more calls, up to 16,384.
///
/// A new budget starts in shared mode and leaves it after 32 such calls; until then it takes no
/// memory except its own 128 bytes. A budget always stays in shared mode if its limit is below 64
/// units for each lane in use, or in the atomic tier. [The design page](crate::design::budget)
/// describes the protocol.
///
/// # Memory order
///
/// What a thread did before it released units happens before the return of the acquire that gets
/// these units. That holds for all kinds of acquires, in both modes. An acquire that gets some of
/// the available units need not see the releases of the others. An acquire of the whole limit sees
/// what preceded the last release of each unit. A refusal orders nothing. [The design
/// page](crate::design::ordering) has the argument for each tier.
///
/// # Where it may be used
///
/// - On any thread, and in children of [`fork`](https://man7.org/linux/man-pages/man2/fork.2.html).
///   A child starts with everything that the parent's threads held.
/// - In signal handlers only `release`, and only if no task waits in
///   [`acquire_async`](Budget::acquire_async): the handler would run the task's waker. All other
///   methods may wait for a lock that the interrupted thread holds.
/// - In children of `vfork` or `clone(CLONE_VM)` only within a [`vfork_scope`](crate::vfork_scope).
///
/// A budget does not know who holds units: a caller that never releases its units leaks them. A
/// caller that releases more units than it holds harms the limit, but fails no call;
/// [`over_released`](Budget::over_released) counts such units.
///
/// # Panics
///
/// All methods panic if `THISCPU_TIER` is wrong. Methods that recall also panic if fences have
/// become impossible; see [`Counter::sum`](crate::Counter::sum).
///
/// # Examples
///
/// ```
/// use thiscpu::{Budget, TryAcquireError};
///
/// static BLOCKS: Budget = Budget::new(1000);
///
/// BLOCKS.try_acquire(600)?;
/// let refused = BLOCKS.try_acquire(600).unwrap_err();
/// assert_eq!(refused, TryAcquireError::Exhausted { available: 400 });
/// BLOCKS.release(600);
/// # Ok::<(), thiscpu::TryAcquireError>(())
/// ```
#[repr(C)]
pub struct Budget {
    pub(super) gate: Gate,
    /// Held by the thread that changes the gate, the limit or the queue.
    pub(super) lock: Lock,
    /// The generation of the process that discarded its parent's waiters last.
    pub(super) recovered: AtomicU32,
    /// The number of recalls that have begun.
    ///
    /// `add_credit` compares it, so that a batch borrowed before a recall enters no lane after it.
    pub(super) recalls: AtomicU64,
    pub(super) limit: AtomicI64,
    /// A call in shared mode is *plentiful* if it leaves at least this many units in the pool.
    pub(super) percpu_threshold: AtomicI64,
    pub(super) queue: Queue,
    /// In the second cache line, because it changes often. The first hardly ever does.
    pub(super) pool: Pool,
}

const _: () = assert!(size_of::<Budget>() == 128, "the documentation promises this size");

/// The offset of a budget's gate, for code in other languages.
pub const GATE_AT: usize = std::mem::offset_of!(Budget, gate);

// A panic leaves a budget usable: unwinding unlocks it, and a later call completes its state.
impl RefUnwindSafe for Budget {}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

/// The largest batch that a lane borrows, besides the units that the call itself takes.
pub(super) const BATCH_MAX: i64 = 1024;

impl Budget {
    /// The largest possible limit, 2^56.
    pub const LIMIT_MAX: u64 = 1 << 56;

    /// Creates a budget of `limit` units, all of them available.
    ///
    /// Allocates nothing. A budget is 128 bytes.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`LIMIT_MAX`](Budget::LIMIT_MAX). In a constant this is a compile error.
    pub const fn new(limit: u64) -> Self {
        assert!(limit <= Self::LIMIT_MAX, "a budget's limit is at most 2^56");
        Budget {
            gate: Gate::new(),
            lock: Lock::new(),
            recovered: AtomicU32::new(0),
            recalls: AtomicU64::new(0),
            limit: AtomicI64::new(limit as i64),
            percpu_threshold: AtomicI64::new(percpu_threshold(limit as i64, 1)),
            queue: Queue::new(),
            pool: Pool::new(limit as i64, INITIAL_CALLS),
        }
    }
}

/// Returns `n` as the pool counts units, or `None` if there cannot be that many.
pub(super) fn countable(n: u64) -> Option<i64> {
    i64::try_from(n).ok().filter(|_| n <= Budget::LIMIT_MAX)
}

/// Returns how many units a call must leave in the pool to be plentiful.
///
/// That is eight full batches for each lane, or three quarters of the limit if that is less, but at
/// least 64 units a lane.
pub(super) const fn percpu_threshold(limit: i64, lanes: usize) -> i64 {
    let lanes = if lanes == 0 { 1 } else { lanes as i64 };
    let (batches, three_quarters, minimum) = (8 * lanes * BATCH_MAX, limit / 4 * 3, 64 * lanes);
    let threshold = if batches < three_quarters { batches } else { three_quarters };
    if threshold > minimum { threshold } else { minimum }
}
