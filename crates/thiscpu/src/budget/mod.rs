//! Budgets: a limit that is never exceeded and never refused wrongly.

mod credit;
mod lease;
mod percpu_mode;
mod pool;
mod recall;
mod shared_mode;
mod wait;

use core::fmt;
use core::panic::RefUnwindSafe;
use core::time::Duration;

pub use self::credit::SCALE;
pub use self::lease::{Lease, Reserve};
use self::pool::Pool;
pub(crate) use self::recall::OVER_RELEASED;
use self::recall::{CALLS_OF_NEW, percpu_threshold};
pub use self::wait::Acquire;
use self::wait::Queue;
use crate::quiesce::Gate;
use crate::section::{Outcome, Processor, Sections as _};
use crate::sys::atomic::{AtomicI64, AtomicU32, AtomicU64};
use crate::sys::lock::Lock;

/// An amount that is shared: free blocks, memory, connections, licences.
///
/// `limit` units exist. Who acquires some holds them until they are released, by whomever. At no
/// instant are more held than the limit allows, and a call is refused only if at some instant of the call
/// fewer units were free than it wanted; it says how many there were.
///
/// | | while there is room | near the limit | blocks whom |
/// |---|---|---|---|
/// | [`try_acquire`](Budget::try_acquire), [`release`](Budget::release) | one section | one atomic operation | nobody; who would be refused waits for a recall |
/// | [`acquire`](Budget::acquire) | as `try_acquire` | sleeps; first come, first served | those who come later |
/// | [`available`](Budget::available), [`acquired`](Budget::acquired), [`set_limit`](Budget::set_limit) | a recall: one fence and a look at each lane | a lock, and a load or two exchanges | each other, and as `try_acquire` |
///
/// **How.** Units are in a pool, and as credit in the lanes. An acquire takes from its own CPU's
/// credit; a CPU short of it borrows a batch from the pool. Where the pool is short as well, a
/// **recall** closes the gate, fences, and puts all credit into the pool. After that the budget is
/// **tight**: every call is one atomic operation on the pool, and costs what one shared atomic costs, until units
/// have been plentiful for some hundred calls. A new budget is tight for its first calls, and takes no
/// memory but its own 128 bytes. [The essay](crate::essays::budget) has the protocol.
///
/// **Where it may be used.** On any thread, also after [`fork`](https://man7.org/linux/man-pages/man2/fork.2.html),
/// where children go on with what the parent's threads held. In signal handlers only `release`, and that only if
/// nobody uses [`acquire_async`](Budget::acquire_async) on the budget, because it would wake tasks from the handler; the
/// others may wait for a lock that the interrupted thread holds. A child of `vfork` or `clone(CLONE_VM)` must
/// not use it.
///
/// **Panics.** Whoever gathers units finds out that more was released than was held, by whomever, and panics with the figures
/// once the excess is dropped and all is right again: that is every call but a `try_acquire` and a `release`
/// that end in a section. All panic if `THISCPU_TIER` is wrong, and those that recall as
/// [`Counter::sum`](crate::Counter::sum) does.
///
/// In the atomic tier a budget is always tight.
///
/// ```
/// use thiscpu::Budget;
///
/// static BLOCKS: Budget = Budget::new(1000);
///
/// BLOCKS.try_acquire(600)?;
/// let refused = BLOCKS.try_acquire(600).unwrap_err();
/// assert_eq!(refused.available, 400);
/// BLOCKS.release(600);
/// # Ok::<(), thiscpu::Exhausted>(())
/// ```
#[repr(C)]
pub struct Budget {
    gate: Gate,
    /// Held by whoever changes the gate, the limit or the queue.
    lock: Lock,
    /// The generation of the process that has forgotten its parent's waiters.
    recovered: AtomicU32,
    /// How many recalls have begun.
    recalls: AtomicU64,
    limit: AtomicI64,
    /// From how many units in a tight pool on lanes may be worth while.
    percpu_threshold: AtomicI64,
    queue: Queue,
    /// In the second cache line. The first is hardly ever written.
    pool: Pool,
}

const _: () = assert!(size_of::<Budget>() == 128, "what is promised in several places");

/// Where a budget's gate is, for code that is no Rust.
pub const GATE_AT: usize = core::mem::offset_of!(Budget, gate);

impl RefUnwindSafe for Budget {}

/// A budget had fewer units than were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// How many were free, at one instant of the call that was refused.
    pub available: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the budget is exhausted: {} units are free, and more were asked for",
            self.available
        )
    }
}

impl std::error::Error for Exhausted {}

/// `n` units as the pool counts them, if there can be so many.
fn countable(n: u64) -> Option<i64> {
    i64::try_from(n).ok().filter(|_| n <= Budget::LIMIT_MAX)
}

impl Budget {
    /// The largest limit there can be, 2^56.
    pub const LIMIT_MAX: u64 = 1 << 56;

    /// A budget of `limit` units, all of them free. Allocates nothing; 128 bytes.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`LIMIT_MAX`](Budget::LIMIT_MAX); in a constant that is an error of the compiler's.
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
            pool: Pool::new(limit as i64, CALLS_OF_NEW),
        }
    }

    /// Acquires `n` units, or none.
    ///
    /// One section while there is room: no atomic instruction, no fence, one cache line of this CPU's
    /// written. Near the limit one compare-exchange; where it would be refused because lanes hold credit,
    /// a recall (one fence). Never waits for units.
    ///
    /// # Errors
    ///
    /// Fewer than `n` were free, or those that were are promised to somebody who waits.
    ///
    /// # Panics
    ///
    /// If a recall finds that more was released than was acquired (the budget is right again
    /// afterwards), and if `THISCPU_TIER` is wrong.
    #[inline(always)]
    pub fn try_acquire(&self, n: u64) -> Result<(), Exhausted> {
        // Below that the product does not overflow.
        if n <= Self::LIMIT_MAX && self.take_from_lane(n as i64) == Outcome::Done {
            return Ok(());
        }
        self.try_acquire_shared(n)
    }

    /// Acquires as many units as there are, at most `n`; returns how many, 0 if there are none.
    ///
    /// Costs what [`try_acquire`](Budget::try_acquire) costs. Panics as that.
    pub fn try_acquire_up_to(&self, n: u64) -> u64 {
        if n <= Self::LIMIT_MAX && self.take_from_lane(n as i64) == Outcome::Done {
            return n;
        }
        self.acquire_up_to(n)
    }

    /// Gives `n` units back, which the caller or somebody else has acquired.
    ///
    /// One section, or one atomic addition to the pool if this CPU holds plenty or the budget is tight. Never
    /// waits, so it may be called from a signal handler; but a task that gets the units is woken by its executor's
    /// own code, here and now.
    ///
    /// # Panics
    ///
    /// If more is released than is held, after waiting for the lock. While the budget is tight that shows here; else
    /// when units are next gathered, in the call that does it. The excess is dropped, or the whole release
    /// ignored if it is of more than all that is held.
    #[inline(always)]
    pub fn release(&self, n: u64) {
        if n > Self::LIMIT_MAX || self.take_from_lane(-(n as i64)) != Outcome::Done {
            self.release_shared(n);
        }
    }

    #[inline(always)]
    fn take_from_lane(&self, n: i64) -> Outcome {
        // SAFETY: this is a budget's gate; its item is 32 bytes and is freed by drop.
        unsafe { Processor::add_windowed(self.gate.word(), n * SCALE) }
    }

    /// As [`try_acquire`](Budget::try_acquire), and the units are released when the lease is dropped.
    ///
    /// # Errors
    ///
    /// As `try_acquire`.
    pub fn lease(&self, n: u64) -> Result<Lease<'_>, Exhausted> {
        self.try_acquire(n).map(|()| Lease::new(self, n))
    }

    /// Sets `n` units aside: only who has the handle may use them.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Budget::try_acquire).
    pub fn try_reserve(&self, n: u64) -> Result<Reserve<'_>, Exhausted> {
        self.lease(n).map(Reserve::new)
    }

    /// Acquires `n` units, and waits until there are so many. First come, first served: while
    /// somebody waits, what is released is promised to the first, however much that one wants.
    ///
    /// Waits for ever for more than the limit, and those who come later with it, unless the limit is raised. One
    /// section if the units are there and nobody waits; else a recall and a lock before it sleeps. Not for
    /// signal handlers.
    pub fn acquire(&self, n: u64) {
        self.wait(n, None).unwrap_or_else(|_| unreachable!("nothing ends this wait but units"));
    }

    /// As [`acquire`](Budget::acquire), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// The time is over, and nothing was acquired.
    pub fn acquire_timeout(&self, n: u64, timeout: Duration) -> Result<(), Exhausted> {
        self.wait(n, Some(timeout))
    }

    /// As [`acquire`](Budget::acquire), as a future of any executor's. The units are released if the lease is
    /// dropped, and it gives its place up if it is dropped before. It comes into the queue when it is first
    /// polled; polled again after it was ready, it acquires again.
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

    /// How many units are free, at one instant within this call; 0 while somebody waits.
    ///
    /// A recall if lanes hold credit, which they get again afterwards; else a lock and a load.
    pub fn available(&self) -> u64 {
        self.with_all_units(|seen, limit| seen.available().min(limit as u64))
    }

    /// How many units are held, at one instant within this call. Costs what [`available`](Budget::available)
    /// costs.
    pub fn acquired(&self) -> u64 {
        self.with_all_units(|seen, limit| (limit - seen.units()).max(0) as u64)
    }

    /// The limit. One load; while another thread changes it, the one that was or the one that will be, which may
    /// not yet be what units are granted by.
    pub fn limit(&self) -> u64 {
        self.limit.load(crate::sys::atomic::Ordering::Relaxed) as u64
    }

    /// Changes the limit, at one instant. Below what is held nothing is taken from anybody, and
    /// nothing is granted until enough has been released.
    ///
    /// Costs a recall if lanes hold credit.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`LIMIT_MAX`](Budget::LIMIT_MAX).
    pub fn set_limit(&self, limit: u64) {
        let limit = countable(limit).expect("a budget's limit is at most 2^56");
        self.change_limit(limit);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit()).finish_non_exhaustive()
    }
}
