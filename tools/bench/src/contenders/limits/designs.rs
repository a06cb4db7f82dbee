//! One shared word, a robust mutex, a System V semaphore, and the library's budget.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use anyhow::Result;

use super::Contender;
use crate::contenders::{
    Padded,
    processes::{self, Contender as _, SharedMemory},
};

/// `atomic-cas`: the units that are left, in one word of shared memory.
///
/// A process that dies keeps its units forever.
pub(crate) struct AtomicCas(SharedMemory<Padded<AtomicI64>>);

impl Contender for AtomicCas {
    fn try_new(limit: u32) -> Result<Self> {
        let word = SharedMemory::<Padded<AtomicI64>>::zeroed()?;
        word.store(limit.into(), Relaxed);
        Ok(Self(word))
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        // Relaxed: the units guard no other data here.
        let mut left = self.0.load(Relaxed);
        while left > 0 {
            // Relaxed, both: as above.
            match self.0.compare_exchange_weak(left, left - 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => left = now,
            }
        }
        false
    }

    #[inline(always)]
    fn release(&self) {
        // Relaxed: as in `try_acquire`.
        self.0.fetch_add(1, Relaxed);
    }

    fn available(&self) -> u32 {
        // Relaxed: the processes have ended.
        self.0.load(Relaxed) as u32
    }
}

/// `robust-mutex`: the units that are left, under a mutex that survives its holder's death.
///
/// A process that dies without the mutex keeps its units forever.
pub(crate) struct RobustMutex(processes::RobustMutex);

/// Changes a word without an atomic addition, under a lock.
#[inline(always)]
fn change(word: &AtomicI64, by: i64) {
    // Relaxed: the lock orders these.
    word.store(word.load(Relaxed) + by, Relaxed);
}

impl Contender for RobustMutex {
    fn try_new(limit: u32) -> Result<Self> {
        let mutex = processes::RobustMutex::try_new()?;
        mutex.locked(|left| change(left, limit.into()));
        Ok(Self(mutex))
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.0.locked(|left| {
            // Relaxed: the lock orders it.
            let has_one = left.load(Relaxed) > 0;
            if has_one {
                change(left, -1);
            }
            has_one
        })
    }

    #[inline(always)]
    fn release(&self) {
        self.0.locked(|left| change(left, 1));
    }

    fn available(&self) -> u32 {
        // Relaxed: the lock orders it.
        self.0.locked(|left| left.load(Relaxed)) as u32
    }
}

/// `sysv-semaphore`: a semaphore; the kernel returns units of a process that ends.
pub(crate) struct SysvSemaphore(processes::SysvSemaphore);

impl Contender for SysvSemaphore {
    // An attempt is two system calls.
    const STEP: u32 = 16;

    fn try_new(limit: u32) -> Result<Self> {
        processes::SysvSemaphore::with_value(limit as i32).map(Self)
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.0.change(-1, libc::IPC_NOWAIT)
    }

    #[inline(always)]
    fn release(&self) {
        self.0.change(1, 0);
    }

    fn available(&self) -> u32 {
        self.0.value() as u32
    }
}

/// `thiscpu`: a budget in a segment without a name.
pub(crate) struct ThisCpu(::thiscpu::SharedBudget);

impl Contender for ThisCpu {
    fn try_new(limit: u32) -> Result<Self> {
        Ok(Self(::thiscpu::Segment::anonymous()?.budget("units", limit.into())?))
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }

    #[inline(always)]
    fn release(&self) {
        self.0.release(1);
    }

    fn available(&self) -> u32 {
        self.0.available() as u32
    }
}
