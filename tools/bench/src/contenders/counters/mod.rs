//! Shared counters.

use std::cmp::Ordering;

pub(crate) use self::{
    atomic::Atomic, dumazet::Dumazet, li_gate::LiGate, nothing::Nothing, section::Section,
    spinlock_fold::SpinlockFold, striped::Striped, this_cpu::ThisCpu,
};
use super::Name;

mod atomic;
mod dumazet;
mod li_gate;
mod nothing;
mod section;
mod spinlock_fold;
mod striped;
#[cfg(test)]
mod tests;
mod this_cpu;

/// The contenders that are counters.
pub(crate) const ALL: &[Name] = &[
    Name::Atomic,
    Name::SpinlockFold,
    Name::Dumazet,
    Name::LiGate,
    Name::Striped,
    Name::Section,
    Name::ThisCpu,
];

/// A counter that many threads share.
///
/// Workloads are generic over this trait, so that each contender's `add` is inlined into the
/// measured loop.
pub(crate) trait Contender: Send + Sync + Sized {
    /// Creates a counter of zero, or returns why it cannot work on this machine.
    fn try_new() -> anyhow::Result<Self>;

    /// Adds `n`, which may be negative.
    fn add(&self, n: i64);

    /// Returns the most precise value the design offers, at any cost.
    fn sum(&self) -> i64;

    /// Compares the counter with `limit` as the design does.
    fn compare(&self, limit: i64) -> Ordering;

    /// Takes the calling thread off per-CPU lanes forever, if the design supports such threads.
    fn leave_lanes() {}
}

/// Evaluates an expression with `C` standing for the type of the counter called `$name`.
macro_rules! for_counter {
    ($name:expr, $C:ident => $body:expr) => {
        for_counter!(@match $name, $C, $body,
            Atomic SpinlockFold Dumazet LiGate Striped Section ThisCpu Nothing)
    };
    (@match $name:expr, $C:ident, $body:expr, $($variant:ident)*) => {
        match $name {
            $($crate::contenders::Name::$variant => {
                type $C = $crate::contenders::counters::$variant;
                $body
            })*
            other => unreachable!("{other} is not a counter"),
        }
    };
}
pub(crate) use for_counter;

/// Compares a counter with `limit` as the kernel does.
///
/// The rough value decides if it is further from the limit than the lanes can hold back. Otherwise
/// the exact sum decides.
#[inline]
fn rough_then_exact(
    rough: i64,
    limit: i64,
    held_back_max: i64,
    sum: impl FnOnce() -> i64,
) -> Ordering {
    if rough.abs_diff(limit) > held_back_max.unsigned_abs() {
        rough.cmp(&limit)
    } else {
        sum().cmp(&limit)
    }
}
