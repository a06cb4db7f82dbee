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
    $ for_budget, budgets: AtomicCas CompareTwice CompareOnce LimitedAdd Semaphore ThisCpu
}

/// A budget of units that many threads share.
///
/// Workloads are generic over this trait, so that each contender's calls are inlined into the
/// measured loop.
pub(crate) trait Contender: Send + Sync + Sized {
    /// Whether the design claims that the limit holds and that no refusal is wrong.
    ///
    /// A run fails if it finds such a claim to be false.
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
