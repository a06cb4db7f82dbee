//! Limits that processes share.

use std::cell::Cell;

use anyhow::ensure;

use super::processes::Repeated;

pub(crate) use self::designs::{AtomicCas, RobustMutex, SysvSemaphore, ThisCpu};

mod designs;
#[cfg(test)]
mod tests;

family! {
    $ limits: AtomicCas RobustMutex SysvSemaphore ThisCpu
}

/// The largest limit that each contender can have.
pub(crate) const LIMIT_MAX: u32 = 30_000;

/// A limit that is made before processes are forked, and that all of them use.
pub(crate) trait Contender: Sized {
    /// The number of attempts between two checks of the stop flag.
    const STEP: u32 = 256;

    /// Makes a limit of at most [`LIMIT_MAX`].
    fn try_new(limit: u32) -> anyhow::Result<Self>;

    /// Acquires a unit, if there is one.
    fn try_acquire(&self) -> bool;

    /// Releases a unit that the calling process has acquired.
    fn release(&self);

    fn available(&self) -> u32;
}

/// An attempt to acquire a unit, and its release.
pub(crate) struct Attempt<C> {
    contender: C,
    limit: u32,
    /// Attempts of this process that got a unit.
    grants: Cell<u64>,
    /// The share of all attempts that got a unit, once that is known.
    granted: Cell<f64>,
}

impl<C: Contender> Attempt<C> {
    pub(crate) fn at(limit: u32) -> anyhow::Result<Self> {
        let contender = C::try_new(limit)?;
        Ok(Attempt { contender, limit, grants: Cell::new(0), granted: Cell::new(0.0) })
    }

    /// Returns the share of all attempts that got a unit, after [`check`](Repeated::check).
    pub(crate) fn granted(&self) -> f64 {
        self.granted.get()
    }
}

impl<C: Contender> Repeated for Attempt<C> {
    const STEP: u32 = C::STEP;

    #[inline(always)]
    fn once(&self, _process: usize) {
        if self.contender.try_acquire() {
            self.contender.release();
            self.grants.set(self.grants.get() + 1);
        }
    }

    fn own(&self) -> i64 {
        self.grants.get() as i64
    }

    fn check(&self, times: u64, own: i64) -> anyhow::Result<()> {
        self.granted.set(own as f64 / times as f64);
        let (limit, available) = (self.limit, self.contender.available());
        ensure!(available == limit, "{available} of {limit} units came back");
        Ok(())
    }
}
