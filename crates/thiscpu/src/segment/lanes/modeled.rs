//! Shared counters in a static, for the model, which has no files.

use super::lane::Bank;
use super::sums::{self, Lanes};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use crate::sys::machine::Machine as _;
use crate::tier::Tier;

type Banks<const N: usize, const LANES: usize> = [[[Bank; 2]; N]; LANES];

/// `N` counters of one epoch, with `LANES` lanes, as a segment holds them.
#[derive(Debug)]
pub struct SharedCounters<const N: usize, const LANES: usize> {
    epoch: AtomicU64,
    positive: Banks<N, LANES>,
    /// Whether the banks for negative amounts are in use.
    has_negative: AtomicU64,
    negative: Banks<N, LANES>,
}

impl<const N: usize, const LANES: usize> SharedCounters<N, LANES> {
    const ZEROS: Banks<N, LANES> = [const { [const { [Bank::new(), Bank::new()] }; N] }; LANES];

    /// Creates counters that are 0.
    pub const fn new() -> Self {
        let (epoch, has_negative) = (AtomicU64::new(0), AtomicU64::new(0));
        SharedCounters { epoch, positive: Self::ZEROS, has_negative, negative: Self::ZEROS }
    }

    fn lanes(banks: &Banks<N, LANES>) -> Lanes {
        // SAFETY: the banks of all counters lie side by side in each lane, as long as `self` lives.
        unsafe { Lanes::new((&raw const *banks).cast(), size_of::<[[Bank; 2]; N]>(), LANES as u32) }
    }

    fn negative(&self) -> Option<Lanes> {
        // Acquire: as in `Place::negative`.
        (self.has_negative.load(Acquire) != 0).then(|| Self::lanes(&self.negative))
    }

    /// Adds `n` to a counter, in the lane of the CPU that the thread is on.
    pub fn add(&self, counter: usize, n: i64) {
        assert!(counter < N);
        let cpu = Host::index(Tier::Atomic).unwrap_or(0) as u32;
        let lanes = match n >= 0 {
            true => Self::lanes(&self.positive),
            false => self.negative().unwrap_or_else(|| {
                // AcqRel: as in `Place::use_negative`.
                let _ = self.has_negative.compare_exchange(0, 1, AcqRel, Acquire);
                Self::lanes(&self.negative)
            }),
        };
        lanes.add(counter, &self.epoch, cpu % LANES as u32, n);
    }

    /// Returns the values of all counters at one instant.
    pub fn sum(&self) -> [i64; N] {
        let mut sums = [0; N];
        let parts = || [Some(Self::lanes(&self.positive)), self.negative()];
        sums::sum(&self.epoch, parts, &mut sums);
        sums
    }

    /// Returns the positive amounts that were added to one counter, at one instant.
    ///
    /// Leaves out the others, although they have the same epoch. `None` if others overtake it.
    pub fn sum_one(&self, counter: usize) -> Option<i64> {
        let mut sum = [0];
        let lanes = Self::lanes(&self.positive);
        sums::sum_within(4, &self.epoch, lanes, |_| counter, &mut sum).then_some(sum[0])
    }

    /// Returns the positive amounts that were added to a counter, as a view does.
    pub fn count_positive(&self, counter: usize) -> Option<i64> {
        Self::lanes(&self.positive).count(counter)
    }
}
