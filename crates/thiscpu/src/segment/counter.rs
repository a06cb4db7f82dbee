//! Counters in a segment.

use std::fmt;
use std::sync::Arc;

use super::file::directory::{Kind, find_or_make};
use super::file::error::SegmentError;
use super::file::mapping::Mapping;
use super::file::place::Place;

/// The most counters in a group.
pub(super) const COUNTERS_MAX: usize = Kind::COUNTERS_MAX as usize;

/// A counter that processes share, and whose exact value each of them can read at any time.
///
/// [`Segment::counter`](super::Segment::counter) makes it. A handle is a few words; clones lead to
/// the same counter, and keep the segment attached.
///
/// Adds never wait. A process that is killed at any instruction has made each of its adds or not,
/// and holds nothing that others would wait for. Values are `i64` and wrap around on overflow.
///
/// | | cost | waits for |
/// |---|---|---|
/// | [`add`] | one locked instruction on a cache line of this CPU | nothing; lock-free |
/// | [`sum`] | an exchange and a few loads for each lane | nothing; lock-free |
///
/// [`add`]: SharedCounter::add
/// [`sum`]: SharedCounter::sum
///
/// # Consistency and memory order
///
/// All operations are linearizable, as those of [`Counter`](crate::Counter) are. What a thread did
/// before an `add` happens before the return of each `sum` that includes it, also if the threads
/// are of two processes.
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// let segment = thiscpu::Segment::anonymous()?;
/// let requests = segment.counter("requests")?;
/// requests.inc();
/// assert_eq!(requests.sum(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedCounter(Place);

impl SharedCounter {
    pub(super) fn find_or_make(
        segment: &Arc<Mapping>,
        name: &str,
    ) -> Result<SharedCounter, SegmentError> {
        Place::find(segment, name, 1, find_or_make).map(SharedCounter)
    }

    /// Adds `n`, which may be negative.
    ///
    /// May be called from signal handlers and after `fork`. Costs about one uncontended atomic
    /// addition for amounts below 32,768, and about twice that for larger ones.
    ///
    /// The first negative amount takes 32 bytes more in each lane. In each process, the first call
    /// after that, also a sum, may make system calls: `fstat`, `fallocate`, `madvise`. So subtract
    /// once before a sandbox ends the process for these calls. If there is no memory, the add
    /// succeeds, but [views](crate::SegmentView) get no bounds of the counter any more.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.add(0, n);
    }

    /// Adds 1, as [`add`](SharedCounter::add) does.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts 1, as [`add`](SharedCounter::add) does.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Returns the exact value at one instant of the call.
    ///
    /// Includes every add that happened before the call, in any process. Adds go on meanwhile; one
    /// that meets the sum takes a second locked instruction. May be called from signal handlers and
    /// after `fork`.
    pub fn sum(&self) -> i64 {
        let mut sum = [0];
        self.0.sum(&mut sum);
        sum[0]
    }
}

impl fmt::Debug for SharedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCounter").field("sum", &self.sum()).finish()
    }
}

/// `N` counters that processes share, and that are read at one instant.
///
/// [`Segment::counters`](super::Segment::counters) makes them. Everything that
/// [`SharedCounter`] says holds for each of them.
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// let segment = thiscpu::Segment::anonymous()?;
/// let [started, ended] = [0, 1];
/// let requests = segment.counters::<2>("requests")?;
/// requests.add(started, 1);
/// requests.add(ended, 1);
/// assert_eq!(requests.sum(), [1, 1]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedCounters<const N: usize>(Place);

impl<const N: usize> SharedCounters<N> {
    pub(super) const IS_COUNT: () =
        assert!(N >= 1 && N <= COUNTERS_MAX, "a group has 1 to 4,096 counters");

    pub(super) fn find_or_make(
        segment: &Arc<Mapping>,
        name: &str,
    ) -> Result<SharedCounters<N>, SegmentError> {
        let () = Self::IS_COUNT;
        Place::find(segment, name, N as u32, find_or_make).map(SharedCounters)
    }

    /// Adds `n` to a counter, as [`SharedCounter::add`] does.
    ///
    /// # Panics
    ///
    /// If `counter` is not below `N`.
    #[inline]
    pub fn add(&self, counter: usize, n: i64) {
        assert!(counter < N, "counter {counter} of {N}");
        self.0.add(counter, n);
    }

    /// Returns the exact values of all counters at one instant of the call.
    ///
    /// Costs an exchange and a few loads for each counter and lane; otherwise as
    /// [`SharedCounter::sum`].
    pub fn sum(&self) -> [i64; N] {
        let mut sums = [0; N];
        self.0.sum(&mut sums);
        sums
    }

    /// Stores the exact values of all counters at one instant of the call.
    ///
    /// As [`sum`](SharedCounters::sum), without an array on the stack.
    pub fn snapshot_into(&self, sums: &mut [i64; N]) {
        self.0.sum(sums);
    }
}

impl<const N: usize> fmt::Debug for SharedCounters<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCounters").field("sums", &self.sum()).finish()
    }
}
