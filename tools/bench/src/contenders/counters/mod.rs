//! Shared counters.

use std::cmp::Ordering;

pub(crate) use self::{
    dumazet::Dumazet,
    li_gate::LiGate,
    plain::{Atomic, Nothing, SpinlockFold, Striped, ThisCpu},
    section::Section,
};

mod dumazet;
mod li_gate;
mod plain;
mod section;
#[cfg(test)]
mod tests;

family! {
    $ counters: Atomic SpinlockFold Dumazet LiGate Striped Section ThisCpu; Nothing
}

/// A counter that many threads share.
pub(crate) trait Contender: Send + Sync + Sized {
    /// Creates a counter of zero, or returns why it cannot work on this machine.
    fn try_new() -> anyhow::Result<Self>;

    /// Adds `n`, which may be negative.
    fn add(&self, n: i64);

    /// Returns the most precise value the design offers, at any cost.
    fn sum(&self) -> i64;

    /// Compares the counter with `limit` as the design does, or by a sum if it has no comparison.
    #[inline(always)]
    fn compare(&self, limit: i64) -> Ordering {
        self.sum().cmp(&limit)
    }

    /// Takes the calling thread off per-CPU lanes forever, if the design supports such threads.
    fn leave_lanes() {}
}
