//! The designs of a shared counter that run against each other, each in its own file.
//!
//! Each is written from its description, as its authors meant it. What a kernel gets from disabled
//! preemption, a program must pay an atomic instruction for; each file says where.

use std::{cmp::Ordering, fmt, str::FromStr};

pub(crate) use self::{
    atomic::Atomic, dumazet::Dumazet, lanes::Padded, li_gate::LiGate, nothing::Nothing,
    section::Section, spinlock_fold::SpinlockFold, striped::Striped, this_cpu::ThisCpu,
};

mod atomic;
mod dumazet;
mod lanes;
mod li_gate;
mod nothing;
mod section;
mod spinlock_fold;
mod striped;
#[cfg(test)]
mod tests;
mod this_cpu;

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

/// A contender's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// One shared word.
    Atomic,
    /// Lanes folded into a total under a spinlock.
    SpinlockFold,
    /// Lanes folded into an atomic total, sums announced.
    Dumazet,
    /// Lanes folded into an atomic total, adders and sums behind gates.
    LiGate,
    /// The contatori crate.
    Striped,
    /// The floor: the least a restartable section can do.
    Section,
    /// The library this program belongs to.
    ThisCpu,
    /// No counting at all: what the others' work is measured against, and no contender itself.
    Nothing,
}

impl Name {
    /// Everyone who competes, in the order they are shown.
    pub const ALL: [Self; 7] = [
        Self::Atomic,
        Self::SpinlockFold,
        Self::Dumazet,
        Self::LiGate,
        Self::Striped,
        Self::Section,
        Self::ThisCpu,
    ];

    /// The name as it is typed and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::SpinlockFold => "spinlock-fold",
            Self::Dumazet => "dumazet",
            Self::LiGate => "li-gate",
            Self::Striped => "striped",
            Self::Section => "section",
            Self::ThisCpu => "thiscpu",
            Self::Nothing => "none",
        }
    }

    /// Whether this machine can run it; if not, why.
    ///
    /// # Errors
    ///
    /// The reason, as a sentence.
    pub fn available(self) -> anyhow::Result<()> {
        for_contender!(self, C => C::try_new().map(drop))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("no contender has that name; there are {names}")
        })
    }
}

/// Evaluates an expression with `C` standing for the type of the contender called `$name`.
macro_rules! for_contender {
    ($name:expr, $C:ident => $body:expr) => {
        for_contender!(@match $name, $C, $body,
            Atomic SpinlockFold Dumazet LiGate Striped Section ThisCpu Nothing)
    };
    (@match $name:expr, $C:ident, $body:expr, $($variant:ident)*) => {
        match $name {
            $($crate::contenders::Name::$variant => {
                type $C = $crate::contenders::$variant;
                $body
            })*
        }
    };
}
pub(crate) use for_contender;

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
