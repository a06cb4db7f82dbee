//! Counters that processes share.

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
