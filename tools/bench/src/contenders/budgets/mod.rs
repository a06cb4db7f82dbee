//! Shared amounts with a limit.

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

/// Who competes as a budget.
pub(crate) const ALL: &[Name] = &[
    Name::AtomicCas,
    Name::CompareTwice,
    Name::CompareOnce,
    Name::LimitedAdd,
    Name::Semaphore,
    Name::ThisCpu,
];

/// Units that many threads share.
///
/// Workloads are generic over it, so that each contender's calls are inlined into the measured loop.
pub(crate) trait Contender: Send + Sync + Sized {
    /// Whether the design claims that the limit holds and that nobody is refused wrongly. A run in which such
    /// a claim turns out false fails.
    const IS_RIGHT: bool;

    /// Makes a budget of `limit` units, all of them free.
    fn new(limit: u64) -> Self;

    /// Acquires `n` units, or none.
    fn try_acquire(&self, n: u64) -> bool;

    /// Gives back `n` units that were acquired.
    fn release(&self, n: u64);

    /// How many units are free, when nobody does anything.
    fn available(&self) -> i64;

    /// How many recalls there were, where the design has such a thing.
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
            other => unreachable!("{other} is no budget"),
        }
    };
}
pub(crate) use for_budget;
