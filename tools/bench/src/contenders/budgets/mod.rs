//! Budgets: shared amounts with a limit.

pub(crate) use self::{
    compare::{CompareOnce, CompareTwice},
    limited_add::LimitedAdd,
    plain::{AtomicCas, Semaphore, ThisCpu},
};

mod compare;
mod limited_add;
mod plain;
#[cfg(test)]
mod tests;

family! {
    $ budgets: AtomicCas CompareTwice CompareOnce LimitedAdd Semaphore ThisCpu
}

/// A budget of units that many threads share.
pub(crate) trait Contender: Send + Sync + Sized {
    /// Whether it claims that the limit holds and no refusal is wrong; false claims fail a run.
    const IS_RIGHT: bool;

    /// Creates a budget of `limit` units, all of them free.
    fn new(limit: u64) -> Self;

    /// Acquires `n` units, or none; returns whether it acquired them.
    fn try_acquire(&self, n: u64) -> bool;

    fn release(&self, n: u64);

    /// Returns the number of free units, while no other thread uses the budget.
    fn available(&self) -> i64;

    /// Returns the number of recalls so far, if the design has recalls.
    fn recalls(&self) -> Option<u64> {
        None
    }
}
