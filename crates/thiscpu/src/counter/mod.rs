//! Counters: cheap per-CPU adds, and exact sums that never block an add.

mod add;
mod cell;
mod core;
mod counters;
#[cfg(not(thiscpu_model))]
mod dyn_counters;
mod flip;
mod in_flight;
mod mode;
mod pair;
mod sum_all;
mod window;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

pub(crate) use self::cell::bytes as bytes_per_lane;
use self::core::{Batch, Core, Inline};
pub use self::counters::Counters;
#[cfg(not(thiscpu_model))]
pub use self::dyn_counters::DynCounters;
pub use self::in_flight::{InFlight, OwnedInFlight};
use self::sum_all::sealed::{Flips, Sealed};
#[cfg(not(thiscpu_model))]
pub use self::sum_all::try_sum_all;
pub use self::sum_all::{Summable, sum_all};
use self::window::Estimate;
use crate::section::{Outcome, Processor, Sections as _};

/// A counter that each CPU adds to separately, and whose exact value can be read at any time.
///
/// | | cost | error | may wait for |
/// |---|---|---|---|
/// | [`add`] | one section, about 1 ns; wait-free | none | nothing |
/// | [`read`] | a few loads | at most half the width of `bounds` | nothing |
/// | [`bounds`] | a few loads | none: it returns a range | nothing |
/// | [`sum`] | one fence, 0.2 to 30 µs | none | other threads in `sum`, `set`, `take`, `compare` |
/// | [`set`], [`take`] | like `sum` | none | as `sum` |
/// | [`compare`] | a few loads, at most one fence | none | as `sum`, if the value is near `rhs` |
///
/// A *lane* is one CPU's copy of the data; a sum reads each lane in use. A *section* is a short
/// piece of code that the kernel restarts if it interrupts it. A *fence* is a `membarrier` system
/// call.
///
/// [`add`]: Counter::add
/// [`read`]: Counter::read
/// [`bounds`]: Counter::bounds
/// [`sum`]: Counter::sum
/// [`set`]: Counter::set
/// [`take`]: Counter::take
/// [`compare`]: Counter::compare
///
/// Values are `i64` and wrap around on overflow. No add is ever lost.
///
/// # Consistency
///
/// All operations are linearizable: each takes effect at one instant between its start and its end.
/// The range of `bounds` holds at one such instant. A sum includes every add that happens before
/// it: by program order, a join or a lock.
///
/// # Memory order
///
/// What a thread did before an `add` or `set` happens before the return of each `sum`, `take` or
/// `sum_all` whose result includes it. `read`, `bounds` and `compare` order nothing. An add need
/// not see what preceded a sum that does not include it. [The design
/// page](crate::design::ordering) has the argument for each tier.
///
/// # Modes and memory
///
/// A counter starts as one word, in *shared mode*: adds are atomics on that word. After 32 adds it
/// changes to *per-CPU mode*, and adds become sections on this CPU's lane. It then takes 32 bytes
/// for each lane in use, plus 32 bytes that all share. In the atomic tier it takes twice as much.
///
/// A comparison that needs the exact value returns the counter to shared mode, because the next
/// comparison will probably need it too. So after a close comparison each add costs a shared
/// atomic, until about 512 adds pass without another one.
///
/// Dropping a counter zeroes its memory in the lanes and frees it.
///
/// # Where it may be used
///
/// - `add`, `inc`, `dec`, `read` and `bounds` may be called from anywhere. That includes signal
///   handlers, even those that interrupt a `sum` of the same counter, and TLS destructors.
/// - All other methods, and the drop, may wait for a lock that the interrupted thread holds. A
///   signal handler must not call them.
/// - A child of `fork` may use all methods. If the `fork` was made in a signal handler, the child
///   must not return into an operation that the handler interrupted.
/// - A child of `vfork` or `clone(CLONE_VM)` may use all methods if its parent holds a
///   [`vfork_scope`](crate::vfork_scope).
///
/// # When not to use it
///
/// - As a sequence generator or a reference count: `add` does not return the new value.
/// - For a value that one thread writes: a plain atomic is faster.
///
/// # Examples
///
/// ```
/// static HITS: thiscpu::Counter = thiscpu::Counter::new();
///
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         threads.spawn(|| (0..1000).for_each(|_| HITS.inc()));
///     }
/// });
/// assert_eq!(HITS.sum(), 4000);
/// assert_eq!(HITS.take(), 4000);
/// ```
pub struct Counter {
    core: Core<Inline<1>>,
}

const _: () = assert!(size_of::<Counter>() == 64, "the documentation promises this size");

/// The offset of the word that inlined code in other languages loads first.
pub const GATE_AT: usize = std::mem::offset_of!(Counter, core.gate);

/// The range that a counter's value was in, at one instant of the call that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The lower bound: the value was not below it.
    pub low: i64,
    /// The estimate that [`Counter::read`] returns.
    pub estimate: i64,
    /// The upper bound: the value was not above it.
    pub high: i64,
}

/// The result of [`Counter::compare`], true at one instant of that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The order of the counter's value and the other side: `Less` if the value is below.
    pub ordering: Ordering,
    /// The value, if the comparison had to determine it exactly.
    pub exact: Option<i64>,
}

impl Counter {
    /// Creates a counter with value 0.
    ///
    /// Allocates nothing. A counter is 64 bytes.
    ///
    /// The batch (see [`with_batch`](Counter::with_batch)) is 1,024 times the number of lanes in
    /// use, rounded up to a power of two.
    pub const fn new() -> Self {
        Counter { core: Core::new(Batch::PerLane) }
    }

    /// Creates a counter with value 0 whose CPUs publish their count after adding about `batch`.
    ///
    /// [`read`](Counter::read) deviates by at most 2 × lanes × `batch`, or by half of that if the
    /// counter was never summed. So take a smaller batch if `read` must be closer. Take a larger
    /// one if amounts are large, such as bytes: CPUs publish less often then. An amount
    /// above `batch` widens the batch of its lane, and [`bounds`](Counter::bounds) stays correct.
    ///
    /// A batch is rounded up to a power of two, and is at least 128 and at most 2^40. A batch of 0
    /// or 1 keeps the counter in shared mode forever: each add costs what a shared atomic costs,
    /// and `read` is exact.
    pub const fn with_batch(batch: u64) -> Self {
        Counter { core: Core::new(Batch::of(batch)) }
    }

    /// Adds `n`, which may be negative. Wraps around on overflow.
    ///
    /// Wait-free: it restarts its section a bounded number of times, and then uses the shared lane.
    /// An add to the shared lane, and every add in the atomic tier, is lock-free.
    ///
    /// Writes one cache line of this CPU, and reads one that is shared but hardly ever written.
    /// Needs no fence. May be called from anywhere, signal handlers included.
    ///
    /// A thread that gets a [`sum`](Counter::sum) with this add sees what this thread did before.
    ///
    /// # Panics
    ///
    /// If the environment variable `THISCPU_TIER` is invalid, or names a tier that this system
    /// lacks. Call [`tier`](crate::tier()) first to handle that error.
    #[inline(always)]
    pub fn add(&self, n: i64) {
        let gate = self.core.gate.word();
        // SAFETY: this is a counter's gate. Its item has at least 32 bytes in each lane, and only
        // the drop frees it. A constant `n` leaves one of the two sections.
        let outcome = unsafe {
            match n >= 0 {
                true => Processor::add_up(gate, n),
                false => Processor::add_direct(gate, n),
            }
        };
        if outcome != Outcome::Committed {
            self.core.add_slow(0, n);
        }
    }

    /// Adds 1. See [`add`](Counter::add).
    #[inline(always)]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts 1. See [`add`](Counter::add).
    #[inline(always)]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Adds 1, and subtracts it again when the returned guard is dropped.
    ///
    /// Costs one add, and another when the guard is dropped, on whatever CPU that is. A guard that
    /// is forgotten by `mem::forget` counts forever.
    ///
    /// ```
    /// use thiscpu::Counter;
    ///
    /// static REQUESTS: Counter = Counter::new();
    ///
    /// let request = REQUESTS.in_flight();
    /// assert_eq!(REQUESTS.sum(), 1);
    /// std::thread::spawn(move || drop(request)).join().unwrap();
    /// assert_eq!(REQUESTS.sum(), 0);
    /// ```
    ///
    /// # Panics
    ///
    /// Under the conditions of [`add`](Counter::add).
    pub fn in_flight(&self) -> InFlight<'_> {
        InFlight::new(self)
    }

    /// Adds 1, and subtracts it when the returned guard, which keeps the counter, is dropped.
    ///
    /// Like [`in_flight`](Counter::in_flight), for a counter in an `Arc`. The guard is `'static`;
    /// see [`OwnedInFlight`].
    ///
    /// # Panics
    ///
    /// Under the conditions of [`add`](Counter::add).
    pub fn in_flight_owned(self: &Arc<Self>) -> OwnedInFlight {
        OwnedInFlight::new(Arc::clone(self))
    }

    /// Returns an estimate: the middle of the [`bounds`](Counter::bounds).
    ///
    /// Costs as much as the bounds do. Never waits. May be called from anywhere.
    pub fn read(&self) -> i64 {
        self.core.estimate(0).value
    }

    /// Returns the range of the value at one instant of this call, adds in flight included.
    ///
    /// Costs a few loads. Concurrent sums, and adds of threads without a lane, make it repeat them.
    /// After 64 attempts it returns `i64::MIN` and `i64::MAX` with an estimate. Never waits. May be
    /// called from anywhere.
    pub fn bounds(&self) -> Bounds {
        Bounds::of(self.core.estimate(0))
    }

    /// Returns the exact value, at one instant of this call.
    ///
    /// Costs one fence and a read of one or two cache lines of each lane in use; in shared mode it
    /// costs one load. A fence takes about 0.2 µs in an idle process, and 10 to 30 µs if other CPUs
    /// run threads of the process. On an overloaded machine it may take a scheduler's time slice,
    /// some milliseconds.
    ///
    /// An add never waits for a sum: at most, an add in progress restarts its section. Callers that
    /// arrive together share one fence. Must not be called from a signal handler.
    ///
    /// The caller sees what each thread did before the adds that the result includes.
    ///
    /// # Panics
    ///
    /// If fences have become impossible, because a sandbox installed after the first use denies
    /// both `membarrier` and `sched_setaffinity`. Without fences an exact answer is impossible.
    pub fn sum(&self) -> i64 {
        match self.core.shared_value() {
            Some(now) => now.count,
            None => self.core.sums().of(0),
        }
    }

    /// Sets the value to `v`, at one instant of this call.
    ///
    /// Adds before that instant are discarded, adds after it count on top of `v`. Costs a fence
    /// like [`sum`](Counter::sum). Until the fence is over, adds are atomics on one word. Waits
    /// for other callers of `sum`, `set`, `take` and `compare`. Must not be called from a signal
    /// handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`sum`](Counter::sum).
    pub fn set(&self, v: i64) {
        self.core.swap(v);
    }

    /// Sets the value to 0 and returns the old value, at one instant of this call.
    ///
    /// No add is lost or counted twice. Costs and waits as [`set`](Counter::set) does. Must not be
    /// called from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`sum`](Counter::sum).
    ///
    /// ```
    /// let requests = thiscpu::Counter::new();
    /// requests.add(7);
    /// assert_eq!(requests.take(), 7); // and the next scrape starts from 0
    /// assert_eq!(requests.take(), 0);
    /// ```
    pub fn take(&self) -> i64 {
        self.core.swap(0)
    }

    /// Compares the value with `rhs`, at one instant of this call.
    ///
    /// If `rhs` lies outside the [`bounds`](Counter::bounds), the call costs a few loads. Otherwise
    /// it costs one fence and waits as [`set`](Counter::set) does. Then each add costs a shared
    /// atomic, until about 512 adds pass without such a comparison. Must not be called from a
    /// signal handler.
    ///
    /// A comparison does not enforce a limit: between it and the add that follows, another thread
    /// may add. A [`Budget`](crate::Budget) enforces one.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`sum`](Counter::sum).
    ///
    /// ```
    /// use std::cmp::Ordering;
    /// let used = thiscpu::Counter::new();
    /// used.add(100);
    /// assert_eq!(used.compare(200).ordering, Ordering::Less);
    /// ```
    pub fn compare(&self, rhs: i64) -> Comparison {
        if let Some(now) = self.core.shared_value() {
            self.core.note_compare(now);
            return Comparison::exactly(now.count, rhs);
        }
        let Bounds { low, high, .. } = self.bounds();
        match () {
            () if low > rhs => Comparison { ordering: Ordering::Greater, exact: None },
            () if high < rhs => Comparison { ordering: Ordering::Less, exact: None },
            () if low == high => Comparison::exactly(low, rhs),
            () => Comparison::exactly(self.core.to_shared_mode(&self.core.lock()), rhs),
        }
    }
}

impl Bounds {
    fn of(estimate: Estimate) -> Bounds {
        let Estimate { value, slack } = estimate;
        let both = i64::try_from(slack)
            .ok()
            .and_then(|slack| Some((value.checked_sub(slack)?, value.checked_add(slack)?)));
        // If a bound would wrap around, nothing is known about the value.
        let (low, high) = both.unwrap_or((i64::MIN, i64::MAX));
        Bounds { low, estimate: value, high }
    }
}

impl Comparison {
    fn exactly(value: i64, rhs: i64) -> Comparison {
        Comparison { ordering: value.cmp(&rhs), exact: Some(value) }
    }
}

impl Summable for Counter {}

impl Sealed for Counter {
    fn flips(&self) -> &dyn Flips {
        &self.core
    }
}

impl Default for Counter {
    fn default() -> Self {
        Counter::new()
    }
}

// A panic leaves a counter consistent: an incomplete flip is repeated, see `Core::begin_flip`.
impl std::panic::RefUnwindSafe for Counter {}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("bounds", &self.bounds()).finish()
    }
}
