//! Counters that processes share.

use anyhow::ensure;

pub(crate) use self::{
    locked::{RobustMutex, SysvSemaphore},
    memory::{SharedMemory, Zeroed},
    plain::{Atomic, ThisCpu, ThisCpuLocal, Uncontended},
};

mod locked;
mod memory;
mod plain;
#[cfg(test)]
mod tests;

family! {
    $ processes: Atomic Uncontended RobustMutex SysvSemaphore ThisCpuLocal ThisCpu
}

/// The most processes that add.
pub(crate) const PROCESSES_MAX: usize = 64;

/// What processes do again and again in a slice.
pub(crate) trait Repeated {
    /// The number of times between two checks of the stop flag.
    const STEP: u32;

    /// Does it once, in the process of that number.
    fn once(&self, process: usize);

    /// Returns what only the calling process knows of the result.
    fn own(&self) -> i64;

    /// Checks the result of `times` times, of which processes know the sum `own`.
    fn check(&self, times: u64, own: i64) -> anyhow::Result<()>;
}

/// A counter that is made before processes are forked, and that all of them use.
pub(crate) trait Contender: Sized {
    /// The number of adds between two checks of the stop flag.
    const STEP: u32 = 256;

    fn try_new() -> anyhow::Result<Self>;

    /// Adds 1, in the process of that number.
    fn add(&self, process: usize);

    /// Returns the sum of the adds that processes share.
    fn sum(&self) -> i64;

    /// Returns the sum of the adds that only the calling process knows.
    fn own(&self) -> i64 {
        0
    }
}

impl<C: Contender> Repeated for C {
    const STEP: u32 = C::STEP;

    #[inline(always)]
    fn once(&self, process: usize) {
        self.add(process);
    }

    fn own(&self) -> i64 {
        self.own()
    }

    fn check(&self, times: u64, own: i64) -> anyhow::Result<()> {
        let sum = self.sum() + own;
        ensure!(sum == times as i64, "{times} was added, but the sum is {sum}");
        Ok(())
    }
}
