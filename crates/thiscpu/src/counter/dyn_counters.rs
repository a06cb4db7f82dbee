//! Counters whose number is chosen at run time, for C.

use super::core::{Allocated, Batch, Core};
use super::counters::N_MAX;
use super::sum_all::Summable;
use super::sum_all::sealed::{Flips, Sealed};
use crate::section::{Outcome, Processor, Sections as _};

/// [`Counters`](crate::Counters) whose number is chosen at run time.
///
/// The value begins with the gate, as inlined code in C expects.
#[repr(C)]
pub struct DynCounters {
    core: Core<Allocated>,
    /// The number of counters, where inlined code finds it.
    len: usize,
}

impl DynCounters {
    /// The largest number of counters.
    pub const LEN_MAX: usize = N_MAX;
    /// The offset of the number of counters.
    pub const LEN_AT: usize = std::mem::offset_of!(DynCounters, len);

    /// Creates `len` counters with value 0; `None` without memory.
    ///
    /// # Panics
    ///
    /// If `len` is 0 or exceeds [`LEN_MAX`](Self::LEN_MAX).
    pub fn try_new(len: usize) -> Option<DynCounters> {
        assert!(0 < len && len <= N_MAX, "{len} counters");
        Some(DynCounters { core: Core::try_new(Batch::PerLane, len)?, len })
    }

    /// Returns the number of counters.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one counter")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds `n` to counter `i`, as [`Counters::add`](crate::Counters::add) does.
    ///
    /// # Panics
    ///
    /// If `i` is not below the number of counters.
    #[inline(always)]
    pub fn add(&self, i: usize, n: i64) {
        assert!(i < self.len, "counter {i} of {}", self.len);
        // SAFETY: this is a counter's gate, and in the rseq tiers its item has 32 bytes for each of
        // the counters. In the atomic tier no thread's rseq area is published, so every section
        // fails its first check.
        if unsafe { Processor::add_windowed_at(self.core.gate.word(), 32 * i, n) }
            != Outcome::Committed
        {
            self.core.add_slow(i, n);
        }
    }

    /// Returns an estimate of counter `i`, as [`Counter::read`](crate::Counter::read) does.
    ///
    /// # Panics
    ///
    /// If `i` is not below the number of counters.
    pub fn read(&self, i: usize) -> i64 {
        self.core.estimate(i).value
    }

    /// Returns the exact value of counter `i`, as [`Counter::sum`](crate::Counter::sum) does.
    ///
    /// # Panics
    ///
    /// If `i` is not below the number of counters, and under the conditions of `Counter::sum`.
    pub fn sum(&self, i: usize) -> i64 {
        assert!(i < self.len, "counter {i} of {}", self.len);
        self.core.sums().of(i)
    }

    /// Returns the exact values of all counters at one instant, and holds their lock meanwhile.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Counter::sum`](crate::Counter::sum).
    pub fn snapshot(&self) -> impl Iterator<Item = i64> {
        let sums = self.core.sums();
        (0..self.len).map(move |i| sums.of(i))
    }
}

impl Summable for DynCounters {}

impl Sealed for DynCounters {
    fn flips(&self) -> &dyn Flips {
        &self.core
    }
}

// A panic leaves the counters consistent: an incomplete flip is repeated, see `Core::begin_flip`.
impl std::panic::RefUnwindSafe for DynCounters {}
