//! Counters: per-CPU adds, and exact sums that make no adder wait.

mod add;
mod cell;
mod core;
mod counters;
mod flip;
mod mode;
mod pair;
mod sum_all;
mod window;

use std::cmp::Ordering;
use std::fmt;

pub(crate) use self::cell::bytes as bytes_per_lane;
use self::core::{Batch, Core};
pub use self::counters::Counters;
use self::sum_all::sealed::{Flips, Sealed};
pub use self::sum_all::{Summable, sum_all};
use self::window::Estimate;
use crate::section::{Outcome, Processor, Sections as _};

/// A counter with per-CPU adds whose exact value is available at any time.
///
/// | | cost | error | may wait for |
/// |---|---|---|---|
/// | [`add`] | one section, about 1 ns; wait-free | none | nothing |
/// | [`read`] | a few loads | at most the slack of `bounds` | nothing |
/// | [`bounds`] | a few loads | none: it returns a range | nothing |
/// | [`sum`] | one fence, a read of each lane in use | none | other callers in this column |
/// | [`set`], [`take`] | like `sum` | none | other callers in this column |
/// | [`compare`] | a few loads, at most one fence | none | these, if it needs the fence |
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
/// Adds are relaxed. A sum includes every add that happens before it: by program order, a join or a
/// lock.
///
/// # Memory
///
/// A counter starts as one word, in *shared mode*: adds are atomics on that word. After 32 adds it
/// changes to *per-CPU mode*, and adds become sections on this CPU's lane. It then takes 32 bytes
/// for each lane in use (64 in the atomic tier), and as much once more for all CPUs together.
///
/// A comparison that needs the exact value returns the counter to shared mode: the value is near a
/// limit, and the next comparison will need it too. It stays there until about 512 adds pass
/// without a comparison.
///
/// Dropping a counter zeroes its memory in the lanes and frees it.
///
/// # Where it may be used
///
/// - `add`, `inc`, `dec`, `read` and `bounds` may be called from anywhere. That includes signal
///   handlers, even those that interrupt a `sum` of the same counter, and TLS destructors.
/// - All other methods, and the drop, wait for a lock. A signal handler must not call them if it
///   can interrupt one of them.
/// - A child of `fork` may use all methods. If the `fork` was made in a signal handler, the child
///   must not return into an operation that the handler interrupted.
/// - A child of `vfork` or `clone(CLONE_VM)` must not use the library: it shares its parent's
///   memory but not its rseq registration.
///
/// # When not to use it
///
/// - As a sequence generator: no add returns a value that only its caller sees.
/// - As a reference count: "did my add reach zero?" needs such a value too.
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
///
/// # Origins
///
/// The batch and the cheap `read` are those of Linux's `percpu_counter`, whose sum is not a
/// snapshot. Starting as one word is an idea of Overstreet's lazy counters. The two banks that make
/// a sum exact are new.
pub struct Counter {
    core: Core<1>,
}

const _: () = assert!(size_of::<Counter>() == 64, "the documentation promises this size");

/// The offset of a counter's gate, for code in other languages.
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

/// The result of a comparison, at one instant of the call.
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
    /// use.
    pub const fn new() -> Self {
        Counter { core: Core::new(Batch::PerLane) }
    }

    /// Creates a counter with value 0 whose lanes publish after drifting by `batch`.
    ///
    /// A larger batch means rarer writes to the word that [`read`](Counter::read) loads, and wider
    /// bounds. Each of a lane's two banks is within `batch` of its published count. So `read` is
    /// within 2 × lanes × `batch` of the value, or within 1 × if the counter was never summed. A
    /// large amount widens the batch of the lane that it is added to; the bounds include that.
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
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong. Call [`tier`](crate::tier()) first to handle that error.
    #[inline(always)]
    pub fn add(&self, n: i64) {
        // SAFETY: this is a counter's gate. Its item has at least 32 bytes in each lane, and only
        // the drop frees it.
        if unsafe { Processor::add_windowed(self.core.gate.word(), n) } != Outcome::Committed {
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

    /// Returns an estimate: the middle of the [`bounds`](Counter::bounds).
    ///
    /// It is within the slack of the bounds, and costs as much as they do. Never waits. May be
    /// called from anywhere.
    pub fn read(&self) -> i64 {
        self.core.estimate(0).value
    }

    /// Returns the range of the value at one instant of this call, adds in flight included.
    ///
    /// Costs a few loads. Flips, and adds to the shared lane, make it repeat them. After 64
    /// attempts it returns the range of `i64` and an estimate. Never waits. May be called from
    /// anywhere.
    pub fn bounds(&self) -> Bounds {
        Bounds::of(self.core.estimate(0))
    }

    /// Returns the exact value, at one instant of this call.
    ///
    /// Costs one fence and a read of two cache lines of each lane in use; in shared mode it costs
    /// one load. A fence takes about 0.2 µs in an idle process and 10 to 30 µs where other CPUs run
    /// the process; the worst case is a time slice.
    ///
    /// Adders never wait: at most, an add in progress restarts its section. Callers that arrive
    /// together share one fence. Must not be called from a signal handler that can interrupt a
    /// method that waits (see [`Counter`]).
    ///
    /// # Panics
    ///
    /// If fences have become impossible, because a sandbox installed after the first use denies
    /// both `membarrier` and `sched_setaffinity`. Without fences an exact answer is impossible.
    pub fn sum(&self) -> i64 {
        match self.core.shared_value() {
            Some(now) => now.count,
            None => self.core.sums()[0],
        }
    }

    /// Sets the value to `v`, at one instant of this call.
    ///
    /// Adds before that instant are discarded, adds after it count on top of `v`. Costs a fence
    /// like [`sum`](Counter::sum); until that is over adds are atomics on one shared word. Waits
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
    /// The bounds decide if they do not contain `rhs`, which costs a few loads. Otherwise the
    /// counter changes to shared mode, which costs one fence as in [`sum`](Counter::sum), and stays
    /// there while comparisons need the exact value. Waits as [`set`](Counter::set) does if it
    /// needs the fence. Must not be called from a signal handler.
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
