//! Shared counters in a static, for the model, which has no files.

use super::lane::Bank;
use super::sums::Lanes;
use crate::sys::Host;
use crate::sys::atomic::AtomicU64;
use crate::sys::machine::Machine as _;
use crate::tier::Tier;

/// `N` counters of one epoch, with `LANES` lanes, as a segment holds them.
#[derive(Debug)]
pub struct SharedCounters<const N: usize, const LANES: usize> {
    epoch: AtomicU64,
    lanes: [[[Bank; 2]; N]; LANES],
}

impl<const N: usize, const LANES: usize> SharedCounters<N, LANES> {
    /// Creates counters that are 0.
    pub const fn new() -> Self {
        let lanes = [const { [const { [Bank::new(), Bank::new()] }; N] }; LANES];
        SharedCounters { epoch: AtomicU64::new(0), lanes }
    }

    fn lanes(&self) -> Lanes {
        let stride = size_of::<[[Bank; 2]; N]>();
        // SAFETY: the banks of all counters lie side by side in each lane, as long as `self` lives.
        unsafe { Lanes::new((&raw const self.lanes).cast(), stride, LANES as u32) }
    }

    /// Adds `n` to a counter, in the lane of the CPU that the thread is on.
    pub fn add(&self, counter: usize, n: i64) {
        assert!(counter < N);
        let cpu = Host::index(Tier::Atomic).unwrap_or(0) as u32;
        self.lanes().add(counter, &self.epoch, cpu, n);
    }

    /// Returns the values of all counters at one instant.
    pub fn sum(&self) -> [i64; N] {
        let mut sums = [0; N];
        self.lanes().sum(&self.epoch, &mut sums);
        sums
    }
}
