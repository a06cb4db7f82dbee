//! The rate's words.

use std::fmt;
use std::panic::RefUnwindSafe;

use super::error::RateConfigError;
use super::pace::Pace;
use super::pool::{Pool, Slots, State};
use super::terms::{self, Terms};
use crate::budget::calls::{INITIAL_CALLS, PlentifulCalls};
use crate::budget::queue::Queue;
use crate::gate::Gate;
use crate::sys::Host;
use crate::sys::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;

/// A limit on units over time: so many a second, with a burst. A token bucket.
///
/// A rate starts with `burst` units. Its [`Pace`] adds units, up to the burst, and calls take them.
/// Nobody returns units; for a limit on what is held, use a [`Budget`](crate::Budget).
///
/// # Guarantees
///
/// Each call that succeeds takes its units at one instant within the call.
///
/// - **Never exceeded:** in every span of time `t`, calls take at most `burst + pace * t` units.
/// - **Never refused wrongly:** if `n` units are refused, then at one instant of the call a bucket
///   of `burst - share` units had fewer than `n`. That bucket has the same pace, and the same calls
///   take from it. In shared mode the bucket is that of `burst` units.
///
/// So a rate of 100 a second with a burst of 100 may hand out 199 units within one second. If it
/// must never be more than 100, use a [`RateWindow`](crate::RateWindow).
///
/// The *share* is the most units that lanes hold for their CPUs. It is an eighth of the burst
/// unless [`with_share`](Rate::with_share) lowers it. A rate uses lanes only while they get 8 units
/// each, so for a burst of at least 64 units for each CPU in use. Otherwise, and near the limit, it
/// is in shared mode.
///
/// # Time
///
/// The clock is `CLOCK_MONOTONIC`. While the system is suspended, or if the clock stands still, no
/// units come. A call that takes from its lane reads no clock.
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | [`try_acquire`](Rate::try_acquire) far from the limit | one section: about 1 ns |
/// | the same near the limit | a clock read and a 16-byte compare-exchange: about 60 ns |
/// | a refusal in shared mode | a clock read: about 40 ns |
/// | a refusal in per-CPU mode | a recall, which enters shared mode: one fence |
///
/// A rate is 256 bytes, and 32 for each lane in use once it was in per-CPU mode.
///
/// # Where it may be used
///
/// - In statics: [`new`](Rate::new) is `const`, and the first call starts the rate.
/// - After `fork`: the child has a rate of its own, with the parent's units but none of its
///   waiters.
/// - Not in signal handlers: every method may wait for a lock that the interrupted thread holds.
/// - In children of `vfork` or `clone(CLONE_VM)` only within a [`vfork_scope`](crate::vfork_scope).
///
/// # Panics
///
/// All methods panic if `THISCPU_TIER` is wrong. Methods that recall also panic if fences have
/// become impossible; see [`Counter::sum`](crate::Counter::sum).
///
/// # Examples
///
/// ```
/// use thiscpu::{Pace, Rate, RateError};
///
/// static API: Rate = Rate::new(Pace::per_second(100), 20);
///
/// assert_eq!(API.try_acquire(20), Ok(()));
/// let refused = API.try_acquire(20).unwrap_err();
/// assert!(refused.retry_after().unwrap().as_millis() <= 200);
/// assert_eq!(API.try_acquire(21), Err(RateError::AboveBurst { burst: 20 }));
/// ```
#[repr(C, align(64))]
pub struct Rate {
    pub(super) gate: Gate,
    /// The most units that a lane has been lent but was not seen to take. Changes with the gate.
    pub(super) loan_max: AtomicU64,
    /// The number of lanes that may borrow; their loans are at most the share together.
    pub(super) lanes: AtomicUsize,
    /// The share that the user asked for, or `u64::MAX` for an eighth of the burst.
    pub(super) share_max: AtomicU64,
    /// The number of recalls that have begun.
    pub(super) recalls: AtomicU64,
    pub(super) slots: Slots,
    /// In a cache line of their own, because both change often.
    pub(super) shared: Shared,
    pub(super) loan: Loan,
}

/// The words that change in shared mode.
#[repr(C, align(64))]
pub(super) struct Shared {
    pub(super) pool: Pool,
    pub(super) calls: PlentifulCalls,
    /// Held by the thread that changes the gate, the terms, the queue or a lane's window.
    pub(super) lock: Lock,
    /// The generation of the process that discarded its parent's waiters last.
    pub(super) recovered: AtomicU32,
    pub(super) queue: Queue,
}

/// The last loan, so that a child of `fork` can finish it. Changes under the lock.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Loan {
    /// The table entry of the lane.
    pub(super) entry: AtomicUsize,
    /// The lane's window after the loan.
    pub(super) window: AtomicU64,
    /// The pool's loan bit after the last loan that has reached its lane.
    pub(super) done: AtomicU32,
    /// The units that waiters want.
    pub(super) queued: AtomicU64,
}

const _: () = assert!(size_of::<Rate>() == 256, "the documentation promises this size");

// A panic leaves a rate usable: unwinding unlocks it, and a later call completes its state.
impl RefUnwindSafe for Rate {}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rate").field("burst", &self.burst()).finish_non_exhaustive()
    }
}

/// A rate at one instant of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) state: State,
    pub(super) terms: Terms,
    pub(super) time: u64,
    /// The quanta in the pool at `time`.
    pub(super) level: i128,
}

impl Look {
    /// Returns the state after a call has taken `quanta` from the pool.
    pub(super) fn taken(&self, quanta: i128) -> State {
        self.state.with_origin(self.terms.origin(self.time, self.level - quanta))
    }
}

impl Rate {
    /// The largest possible burst, 2^40.
    pub const BURST_MAX: u64 = terms::BURST_MAX;

    /// Creates a rate of `pace`, with `burst` units at most, all of them available.
    ///
    /// Allocates nothing. The lanes' share is an eighth of the burst.
    ///
    /// # Panics
    ///
    /// If `burst` is 0 or above [`BURST_MAX`](Rate::BURST_MAX). In a constant this is a compile
    /// error.
    pub const fn new(pace: Pace, burst: u64) -> Rate {
        match Terms::new(pace, burst) {
            Ok(terms) => Rate::of(&terms, u64::MAX),
            Err(error) => panic!("{}", error.message()),
        }
    }

    /// Creates a rate as [`new`](Rate::new) does, for a burst that may be wrong.
    ///
    /// # Errors
    ///
    /// [`RateConfigError`] if `burst` is 0 or above [`BURST_MAX`](Rate::BURST_MAX).
    pub const fn try_new(pace: Pace, burst: u64) -> Result<Rate, RateConfigError> {
        match Terms::new(pace, burst) {
            Ok(terms) => Ok(Rate::of(&terms, u64::MAX)),
            Err(error) => Err(error),
        }
    }

    const fn of(terms: &Terms, share_max: u64) -> Rate {
        Rate {
            gate: Gate::new(),
            loan_max: AtomicU64::new(0),
            lanes: AtomicUsize::new(0),
            share_max: AtomicU64::new(share_max),
            recalls: AtomicU64::new(0),
            slots: Slots::new(terms),
            shared: Shared {
                pool: Pool::new(terms),
                calls: PlentifulCalls::new(INITIAL_CALLS),
                lock: Lock::new(),
                recovered: AtomicU32::new(0),
                queue: Queue::new(),
            },
            loan: Loan {
                entry: AtomicUsize::new(0),
                window: AtomicU64::new(0),
                done: AtomicU32::new(0),
                queued: AtomicU64::new(0),
            },
        }
    }

    /// Creates a rate whose lanes hold at most `share` units.
    ///
    /// With a share of 0 the rate is always in shared mode: refusals are exact, and each call costs
    /// a clock read and a shared line.
    ///
    /// # Panics
    ///
    /// If `burst` is 0 or above [`BURST_MAX`](Rate::BURST_MAX), or if `share` is above an eighth of
    /// it. In a constant this is a compile error.
    pub const fn with_share(pace: Pace, burst: u64, share: u64) -> Rate {
        let terms = match Terms::new(pace, burst) {
            Ok(terms) => terms.with_share(share),
            Err(error) => Err(error),
        };
        match terms {
            Ok(terms) => Rate::of(&terms, share),
            Err(error) => panic!("{}", error.message()),
        }
    }

    /// Looks at the pool.
    ///
    /// The clock is read after the pool. So a refusal is right at the instant at which the pool was
    /// loaded: at that time it held no more than this. And if the pool is unchanged later, what it
    /// held at this time is still there.
    #[inline]
    pub(super) fn look(&self) -> Look {
        let (state, terms) = self.shared.pool.load(&self.slots);
        let time = Host::time();
        let cap = if state.is_shared() { terms.burst } else { terms.burst - terms.share };
        Look { state, terms, time, level: terms.level(state.origin(), time, cap) }
    }

    /// Returns the number of recalls that have begun.
    pub(crate) fn recalls(&self) -> u64 {
        // Relaxed: for tests and statistics.
        self.recalls.load(Relaxed)
    }

    /// Returns whether the rate is in per-CPU mode.
    pub(crate) fn is_percpu(&self) -> bool {
        !self.shared.pool.load_mode().is_shared()
    }
}
