//! Several counters that can be read at one instant.

use std::fmt;

use super::core::{Batch, Core, Inline};
use super::sum_all::Summable;
use super::sum_all::sealed::{Flips, Sealed};
use crate::section::{Outcome, Processor, Sections as _};

/// `N` counters whose values can be read at one instant; see [`snapshot`](Self::snapshot).
///
/// Each has the guarantees of a [`Counter`](crate::Counter). A snapshot costs one fence, however
/// large `N` is.
///
/// Memory: 40 bytes for each counter and at most 32 more. After the first add, 32 bytes for each
/// counter and lane in use, plus 32 for each counter (in the atomic tier 64 instead of 32).
/// `Counters` have no shared mode. The counters themselves are part of the value, so many of them
/// belong in a `static`, not on the stack.
///
/// `add` and `read` may be called from anywhere, `sum` and `snapshot` not from signal handlers.
/// `Counters` cannot be reset: subtract the previous snapshot instead.
///
/// ```
/// const IN: usize = 0;
/// const OUT: usize = 1;
/// static BYTES: thiscpu::Counters<2> = thiscpu::Counters::new();
/// BYTES.add(IN, 1500);
/// BYTES.add(OUT, 64);
/// assert_eq!(BYTES.snapshot(), [1500, 64]);
/// ```
pub struct Counters<const N: usize> {
    core: Core<Inline<N>>,
}

/// The number of cells of the atomic tier, 64 bytes each, that fit into an item.
pub(super) const N_MAX: usize = 4096;

impl<const N: usize> Counters<N> {
    /// Creates `N` counters with value 0; `N` is 1 to 4,096. Allocates nothing.
    pub const fn new() -> Self {
        const { assert!(0 < N && N <= N_MAX, "Counters<N> takes 1 to 4,096 counters") };
        Counters { core: Core::new(Batch::PerLane) }
    }

    /// Adds `n` to counter `i`; wraps around on overflow.
    ///
    /// Costs what [`Counter::add`](crate::Counter::add) costs.
    ///
    /// # Panics
    ///
    /// If `i` is not below `N`, or if `THISCPU_TIER` is wrong.
    #[inline(always)]
    pub fn add(&self, i: usize, n: i64) {
        assert!(i < N, "counter {i} of {N}");
        // SAFETY: this is a counter's gate, and in the rseq tiers its item has 32 bytes for each of
        // the N counters. In the atomic tier no thread's rseq area is published, so every section
        // fails its first check.
        if unsafe { Processor::add_direct_at(self.core.gate.word(), 32 * i, n) }
            != Outcome::Committed
        {
            self.core.add_slow(i, n);
        }
    }

    /// Returns an estimate of counter `i`, as [`Counter::read`](crate::Counter::read) does.
    ///
    /// # Panics
    ///
    /// If `i` is not below `N`.
    pub fn read(&self, i: usize) -> i64 {
        self.core.estimate(i).value
    }

    /// Returns the exact value of counter `i`, as [`Counter::sum`](crate::Counter::sum) does.
    ///
    /// # Panics
    ///
    /// If `i` is not below `N`, and under the conditions of `Counter::sum`.
    pub fn sum(&self, i: usize) -> i64 {
        assert!(i < N, "counter {i} of {N}");
        self.core.sums().of(i)
    }

    /// Returns the exact values of all counters, at one instant of this call.
    ///
    /// Costs and waits as one [`Counter::sum`](crate::Counter::sum) does. The result is on the
    /// caller's stack: 8 bytes for each counter. [`snapshot_into`](Self::snapshot_into) needs no
    /// such room.
    ///
    /// # Panics
    ///
    /// Under the conditions of `Counter::sum`.
    pub fn snapshot(&self) -> [i64; N] {
        let sums = self.core.sums();
        let mut values = [0; N];
        // A loop that borrows the array would make the compiler copy it to the result.
        #[expect(clippy::needless_range_loop, reason = "needs no second array on the stack")]
        for index in 0..N {
            values[index] = sums.of(index);
        }
        values
    }

    /// Stores the exact values of all counters, at one instant of this call.
    ///
    /// Costs and waits as one [`Counter::sum`](crate::Counter::sum) does.
    ///
    /// # Panics
    ///
    /// Under the conditions of `Counter::sum`. Then `values` is unchanged.
    ///
    /// ```
    /// static BYTES: thiscpu::Counters<4096> = thiscpu::Counters::new();
    /// let mut values = Box::new([0; 4096]);
    /// BYTES.add(7, 1500);
    /// BYTES.snapshot_into(&mut values);
    /// assert_eq!(values[7], 1500);
    /// ```
    pub fn snapshot_into(&self, values: &mut [i64; N]) {
        let sums = self.core.sums();
        values.iter_mut().enumerate().for_each(|(index, value)| *value = sums.of(index));
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

// A panic leaves the counters consistent: an incomplete flip is repeated, see `Core::begin_flip`.
impl<const N: usize> std::panic::RefUnwindSafe for Counters<N> {}

impl<const N: usize> fmt::Debug for Counters<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|i| self.read(i))).finish()
    }
}
