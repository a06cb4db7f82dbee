//! Counters: exact sums that nobody waits for.

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

/// A counter that every CPU adds to on its own, and whose exact value can be had at any time.
///
/// | | while it runs | error | blocks whom |
/// |---|---|---|---|
/// | [`add`](Counter::add) | one section, about a nanosecond; wait-free | none: nothing is lost, ever | nobody |
/// | [`read`](Counter::read) | a few loads | the published slack, see `bounds` | nobody |
/// | [`bounds`](Counter::bounds) | a few loads | states its own, updates in flight included | nobody |
/// | [`sum`](Counter::sum) | one fence and a look at each lane in use | 0: true at one instant within the call | other callers of `sum`, `set`, `take`, `compare` |
/// | [`set`](Counter::set), [`take`](Counter::take) | as `sum` | 0: they happen at one instant | as `sum` |
/// | [`compare`](Counter::compare) | a few loads, at most one fence | 0 | as `sum`, if it takes one |
///
/// These operations are linearizable: each takes effect at one instant between its start and its
/// end, `bounds` and `compare` included. An add orders nothing but itself (it is relaxed); as with
/// any atomic, one thread's add comes before another's `sum` if something makes it so.
///
/// **Lanes.** A counter begins as one word. After a few adds it takes 32 bytes of memory for each CPU
/// in use (64 in the atomic tier), and as much once more for all of them together; adds then are
/// sections on this CPU's own. When a comparison needs the exact value it becomes one word again, because the value is near a limit
/// and the next comparison will need it too, until many adds go by without one.
///
/// **Where it may be used.** `add`, `inc`, `dec`, `read` and `bounds` may be called from anywhere: signal
/// handlers (also one that interrupts this very counter's `sum`), TLS destructors, children of
/// `fork`. The others wait for a lock, so a signal handler that can interrupt one of them must not
/// call them. A child of `vfork` or `clone(CLONE_VM)` shares its parent's memory but not its
/// registration, and must not use the library at all; nor may the child of a `fork` that was made in a signal
/// handler return into an operation which that handler interrupted.
///
/// Dropping a counter gives its memory in the lanes back, zeroed; it waits for other threads that
/// allocate or drop, so it is not for signal handlers.
///
/// **What it is not for.** It is no sequence generator: no add returns a value that only it saw. It
/// is no reference count: "did I take it to zero?" needs such a value too. A counter that only one
/// thread ever writes is faster as a plain atomic.
///
/// Values are `i64` and wrap around on overflow, as two's complement does.
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
/// The two banks are ours; the batch and the cheap `read` are `percpu_counter`'s (Linux), whose sum
/// is not a snapshot; a counter that starts as one word is an idea of Overstreet's lazy counters.
pub struct Counter {
    core: Core<1>,
}

/// Where a counter's gate is, for code that is no Rust.
pub const GATE_AT: usize = std::mem::offset_of!(Counter, core.gate);

/// What a counter's value was within, at one instant of the call that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The value was not below this.
    pub low: i64,
    /// The estimate that [`Counter::read`] gives.
    pub estimate: i64,
    /// The value was not above this.
    pub high: i64,
}

/// What a comparison found, at one instant of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// How the counter's value compares with the other side: `Less` if it is below.
    pub ordering: Ordering,
    /// The value, if it became known exactly.
    pub exact: Option<i64>,
}

impl Counter {
    /// A counter that is 0. Allocates nothing, ever, by itself; 64 bytes.
    ///
    /// The batch (see [`with_batch`](Counter::with_batch)) is 1,024 times the number of lanes in use.
    pub const fn new() -> Self {
        Counter { core: Core::new(Batch::PerLane) }
    }

    /// A counter that is 0, whose lanes publish what they hold when they have drifted by `batch`.
    ///
    /// The larger the batch, the rarer the writes to the word that `read` reads, and the wider the
    /// bounds: each bank of each lane in use is within `batch` of what it has published, so that
    /// `read` is within 2 x lanes x `batch` (only 1 x if the counter was never summed). Amounts that
    /// are themselves large widen the batch of the lane they are added to; the bounds say so.
    ///
    /// A batch is rounded up to a power of two and is at least 128 and at most 2^40. 0 and 1 make a
    /// counter that never takes lanes: each add then costs what a shared atomic costs, and `read` is
    /// exact.
    pub const fn with_batch(batch: u64) -> Self {
        Counter { core: Core::new(Batch::of(batch)) }
    }

    /// Adds `n`, which may be negative. Wraps.
    ///
    /// Wait-free: a section, restarted a bounded number of times, and after that the slow lane
    /// (whose compare-exchange is only repeated if another thread's succeeded; this, and the atomic
    /// tier, is lock-free). Touches one cache line of this CPU's, and
    /// reads one that is shared but hardly ever written. No fence. Blocks nobody.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong. [`tier`](crate::tier()) tells beforehand.
    #[inline(always)]
    pub fn add(&self, n: i64) {
        // SAFETY: this is a counter's gate; its item is at least 32 bytes and is freed by drop.
        if unsafe { Processor::add_windowed(self.core.gate.word(), n) } != Outcome::Done {
            self.core.add_slow(0, n);
        }
    }

    /// Adds 1.
    #[inline(always)]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes 1 away.
    #[inline(always)]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// An estimate: the middle of the [`bounds`](Counter::bounds), and so within their slack of the
    /// value. Costs what they cost.
    pub fn read(&self) -> i64 {
        self.core.estimate(0).value
    }

    /// Limits that the value was within at one instant of this call, updates in flight included.
    ///
    /// A few loads, repeated up to 64 times while flips, or threads that have no lane, change the
    /// counter between them; after that the limits are those of `i64`, and `estimate` is one. Never waits.
    pub fn bounds(&self) -> Bounds {
        Bounds::of(self.core.estimate(0))
    }

    /// The exact value at one instant of this call.
    ///
    /// One fence (0.2 us in an idle process, 10 to 30 us where other CPUs run it, a time slice at
    /// worst) and a look at two cache lines of each lane in use; a load if the counter is one word.
    /// Adders are not held up: one that is in the middle of its section starts it again. Callers
    /// that arrive together share one fence. Not from a signal handler that can interrupt a call
    /// that waits (see [`Counter`]).
    ///
    /// # Panics
    ///
    /// If fences have become impossible (a sandbox installed after the first use that denies both
    /// `membarrier` and `sched_setaffinity`): without one there is no exact answer.
    pub fn sum(&self) -> i64 {
        match self.core.shared_value() {
            Some(now) => now.count,
            None => self.core.sums()[0],
        }
    }

    /// Makes the value `v`, at one instant: adds before it are forgotten, adds after it count on.
    ///
    /// Costs a fence, as [`sum`](Counter::sum), and until that is through adds are atomics on one
    /// shared word. Waits for other callers of `sum`, `set`, `take` and `compare`.
    ///
    /// # Panics
    ///
    /// As [`sum`](Counter::sum).
    pub fn set(&self, v: i64) {
        self.core.swap(v);
    }

    /// Makes the value 0 and returns what it was, at one instant: no add is lost or counted twice.
    ///
    /// Costs and waits as [`set`](Counter::set).
    ///
    /// # Panics
    ///
    /// As [`sum`](Counter::sum).
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

    /// Compares the value with `rhs`, as it was at one instant of this call.
    ///
    /// Decided from the bounds if they do not contain `rhs`. Else the value is near: then the
    /// counter becomes one exact word (one fence, as in [`sum`](Counter::sum)), and stays so while comparisons go on
    /// needing it. Waits as `set` does, if it needs the fence.
    ///
    /// # Panics
    ///
    /// As [`sum`](Counter::sum).
    ///
    /// ```
    /// use std::cmp::Ordering;
    /// let used = thiscpu::Counter::new();
    /// used.add(100);
    /// assert_eq!(used.compare(200).ordering, Ordering::Less);
    /// ```
    ///
    /// A limit that must not be exceeded needs more than this: between the comparison and the add
    /// another thread may add.
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
    fn of(extent: Estimate) -> Bounds {
        let Estimate { value, slack } = extent;
        let both = i64::try_from(slack)
            .ok()
            .and_then(|slack| Some((value.checked_sub(slack)?, value.checked_add(slack)?)));
        // Where the limits would wrap around nothing is known.
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

// A panic (of a fence that cannot be had) leaves a counter whole: see `flip`.
impl std::panic::RefUnwindSafe for Counter {}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("bounds", &self.bounds()).finish()
    }
}
