//! Several counters that can be read at one instant.

use std::fmt;

use super::core::{Batch, Core};
use super::sum_all::Summable;
use super::sum_all::sealed::{Flips, Sealed};
use crate::section::{Outcome, Processor, Sections as _};

/// `N` counters with one gate, so that [`snapshot`](Counters::snapshot) is true for all of them at
/// one instant.
///
/// Each is a [`Counter`](crate::Counter) in what it promises; together they cost one flip and one
/// fence a snapshot. Memory: 40 bytes a counter and 24 to 32 more, 32 a counter for each lane in use, 32 shared (the
/// atomic tier: 64 in place of 32).
///
/// ```
/// const IN: usize = 0;
/// const OUT: usize = 1;
/// static BYTES: thiscpu::Counters<2> = thiscpu::Counters::new();
/// BYTES.add(IN, 1500);
/// BYTES.add(OUT, 64);
/// assert_eq!(BYTES.snapshot(), [1500, 64]);
/// ```
///
/// One gate for several counters follows from the flip; the kernel has no such thing.
pub struct Counters<const N: usize> {
    core: Core<N>,
}

/// As many cells of the larger kind as fit into a lane.
const N_MAX: usize = 4096;

impl<const N: usize> Counters<N> {
    /// Counters that are 0, 1 to 4,096 of them. Allocates nothing; lanes are taken at the first add.
    pub const fn new() -> Self {
        const { assert!(0 < N && N <= N_MAX, "Counters<N> takes 1 to 4,096 counters") };
        Counters { core: Core::new(Batch::PerLane) }
    }

    /// Adds `n` to counter `i`; wraps. As [`Counter::add`](crate::Counter::add).
    ///
    /// # Panics
    ///
    /// If `i` is not below `N`.
    #[inline(always)]
    pub fn add(&self, i: usize, n: i64) {
        assert!(i < N, "counter {i} of {N}");
        // SAFETY: this is a counter's gate, and in the rseq tiers its item has 32 bytes for each of
        // the N counters; in the atomic tier no thread's area is
        // published, so no section gets past its first check.
        if unsafe { Processor::add_windowed_at(self.core.gate.word(), 32 * i, n) } != Outcome::Done
        {
            self.core.add_slow(i, n);
        }
    }

    /// An estimate of counter `i`. As [`Counter::read`](crate::Counter::read).
    ///
    /// # Panics
    ///
    /// If `i` is not below `N`.
    pub fn read(&self, i: usize) -> i64 {
        self.core.estimate(i).value
    }

    /// The exact value of counter `i`. As [`Counter::sum`](crate::Counter::sum).
    ///
    /// # Panics
    ///
    /// If `i` is not below `N`, and as `Counter::sum`.
    pub fn sum(&self, i: usize) -> i64 {
        self.core.sums()[i]
    }

    /// The exact values of all counters at one instant within the call. Costs and blocks as one
    /// [`Counter::sum`](crate::Counter::sum).
    ///
    /// # Panics
    ///
    /// As `Counter::sum`.
    pub fn snapshot(&self) -> [i64; N] {
        self.core.sums()
    }
}

impl<const N: usize> Summable for Counters<N> {}

impl<const N: usize> Sealed for Counters<N> {
    fn flips(&self) -> &dyn Flips {
        &self.core
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Counters::new()
    }
}

// As for `Counter`.
impl<const N: usize> std::panic::RefUnwindSafe for Counters<N> {}

impl<const N: usize> fmt::Debug for Counters<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|i| self.read(i))).finish()
    }
}
