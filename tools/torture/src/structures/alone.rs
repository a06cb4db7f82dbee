//! What holds of a counter that nobody else changes.

use std::cmp::Ordering;

use thiscpu::Counter;

use super::Actor;
use crate::wrong::{Checked, equal, holds, within};

/// The answers of a counter whose value is known.
pub(super) fn settled(counter: &Counter, value: i64) -> Checked {
    equal("a sum", value, counter.sum())?;
    let bounds = counter.bounds();
    within("a value's bounds", (bounds.low, bounds.high), value)?;
    equal("a read", bounds.estimate, counter.read())?;
    holds("the value equals itself", counter.compare(value).ordering == Ordering::Equal)?;
    for near in [value.wrapping_sub(1), value.wrapping_add(1)] {
        holds("the value next to its own", counter.compare(near).ordering == value.cmp(&near))?;
    }
    equal("a sum after comparisons", value, counter.sum())
}

/// Whether the bounds of a counter that nobody changes say anything, which they do unless amounts
/// were as large as numbers are. To be asked before [`settled`], whose comparisons make it one word.
pub(super) fn has_known_bounds(counter: &Counter) -> bool {
    let bounds = counter.bounds();
    bounds.low > i64::MIN / 2 && bounds.high < i64::MAX / 2
}

/// The same as [`settled`], and what becomes of it when the caller alone goes on. Whatever it was before, it is
/// 0 then.
pub(super) fn goes_on(counter: &Counter, value: i64, actor: &mut Actor) -> Checked {
    settled(counter, value)?;
    let mut value = value;
    // Enough to leave tight mode, and to move windows.
    for _ in 0..700 + actor.random.usize(..700) {
        let n = actor.random.i64(-40_000..40_000);
        counter.add(n);
        value = value.wrapping_add(n);
    }
    settled(counter, value)?;
    equal("what is taken", value, counter.take())?;
    equal("what is left", 0, counter.take())?;
    counter.set(value);
    counter.inc();
    equal("what was set, and one more", value.wrapping_add(1), counter.take())
}
