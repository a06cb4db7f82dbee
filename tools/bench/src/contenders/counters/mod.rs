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

/// Who competes as a counter.
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
/// Workloads are generic over it, so that each contender's `add` is inlined into the measured loop.
pub(crate) trait Contender: Send + Sync + Sized {
    /// Makes a counter of zero, or says why this machine cannot have one.
    fn try_new() -> anyhow::Result<Self>;

    /// Adds `n`, which may be negative.
    fn add(&self, n: i64);

    /// The best value the design has to offer, whatever that takes.
    fn sum(&self) -> i64;

    /// How the counter compares with `limit`, by the design's own way of comparing.
    fn compare(&self, limit: i64) -> Ordering;

    /// Takes the calling thread's per-CPU lane away for good, where the design knows such threads.
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
            other => unreachable!("{other} is no counter"),
        }
    };
}
pub(crate) use for_counter;

/// Compares the kernel's way: a rough value decides when it is further from the limit than the
/// lanes can hold back; otherwise the exact sum does.
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
