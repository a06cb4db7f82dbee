//! `threshold`: every thread adds 1, compares with a limit near the value, and subtracts 1. An
//! operation is all three.

use std::hint::black_box;

use super::{Measured, Setting, plus_and_minus};
use crate::contenders::counters::Contender;

pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    // The value is the number of threads between their two adds, from none to all. A limit in the
    // middle is always close.
    let limit = (setting.threads as i64 / 2).max(1);
    // Fewer than for adds: a comparison can be a sum, which takes microseconds.
    plus_and_minus(setting, 16, 1, |counter: &C| {
        black_box(counter.compare(limit));
        Ok(())
    })
}
