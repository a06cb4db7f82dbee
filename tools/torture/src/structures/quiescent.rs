//! Checks of a counter that no other thread changes.

use std::cmp::Ordering;

use thiscpu::Counter;

use super::Actor;
use crate::violation::{Checked, equal, holds, within};

/// Checks the answers of a counter whose value is known.
pub(super) fn check_value(counter: &Counter, value: i64) -> Checked {
    equal("a sum", value, counter.sum())?;
    let bounds = counter.bounds();
    within("a value's bounds", (bounds.low, bounds.high), value)?;
    equal("a read", bounds.estimate, counter.read())?;
    holds(
        "the value compares equal to itself",
        counter.compare(value).ordering == Ordering::Equal,
    )?;
    for near in [value.wrapping_sub(1), value.wrapping_add(1)] {
        holds(
            "the order of a neighboring value",
            counter.compare(near).ordering == value.cmp(&near),
        )?;
    }
    equal("a sum after comparisons", value, counter.sum())
}

/// Returns whether the bounds of a quiescent counter are finite.
///
/// They are, unless some amounts were as large as `i64` allows. Call this before [`check_value`],
/// whose comparisons make the counter one word.
pub(super) fn has_finite_bounds(counter: &Counter) -> bool {
    let bounds = counter.bounds();
    bounds.low > i64::MIN / 2 && bounds.high < i64::MAX / 2
}

/// Checks a counter as [`check_value`] does, then changes it and checks it again.
///
/// Leaves it at an arbitrary value.
pub(super) fn check_changes(counter: &Counter, value: i64, actor: &mut Actor) -> Checked {
    check_value(counter, value)?;
    let mut value = value;
    // Enough to leave shared mode and to move windows.
    for _ in 0..700 + actor.random.usize(..700) {
        let n = actor.random.i64(-40_000..40_000);
        counter.add(n);
        value = value.wrapping_add(n);
    }
    check_value(counter, value)?;
    equal("the value taken", value, counter.take())?;
    equal("the value left", 0, counter.take())?;
    counter.set(value);
    counter.inc();
    equal("the value set, plus one", value.wrapping_add(1), counter.take())
}
