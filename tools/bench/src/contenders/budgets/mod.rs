//! Budgets: shared amounts with a limit.

pub(crate) use self::{
    atomic_cas::AtomicCas, compare_once::CompareOnce, compare_twice::CompareTwice,
    limited_add::LimitedAdd, semaphore::Semaphore, this_cpu::ThisCpu,
};
use super::Name;

mod atomic_cas;
mod compare_once;
mod compare_twice;
mod limited_add;
mod semaphore;
#[cfg(test)]
mod tests;
mod this_cpu;

/// The contenders that are budgets.
pub(crate) const ALL: &[Name] = &[
    Name::AtomicCas,
    Name::CompareTwice,
    Name::CompareOnce,
    Name::LimitedAdd,
    Name::Semaphore,
    Name::ThisCpu,
];

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

    /// Releases `n` acquired units.
    fn release(&self, n: u64);

    /// Returns the number of free units, while no other thread uses the budget.
    fn available(&self) -> i64;

    /// Returns the number of recalls so far, if the design has recalls.
    fn recalls(&self) -> Option<u64> {
        None
    }
}

/// Evaluates an expression with `C` standing for the type of the budget called `$name`.
macro_rules! for_budget {
    ($name:expr, $C:ident => $body:expr) => {
        for_budget!(@match $name, $C, $body,
            AtomicCas CompareTwice CompareOnce LimitedAdd Semaphore ThisCpu)
    };
    (@match $name:expr, $C:ident, $body:expr, $($variant:ident)*) => {
        match $name {
            $($crate::contenders::Name::$variant => {
                type $C = $crate::contenders::budgets::$variant;
                $body
            })*
            other => unreachable!("{other} is not a budget"),
        }
    };
}
pub(crate) use for_budget;
