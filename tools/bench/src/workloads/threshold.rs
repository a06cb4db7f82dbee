//! `threshold`: every thread adds 1, compares with a limit near the value, and subtracts 1. An
//! operation is all three.

use std::hint::black_box;

use anyhow::ensure;

use super::{Measured, Setting, shared_counter};
use crate::{contenders::counters::Contender, metric::TIME_PER_OP};

pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    // The value is the number of threads between their two adds, from none to all. A limit in the
    // middle is always close.
    let limit = (setting.threads as i64 / 2).max(1);
    let prepare = |_| {
        || {
            counter.add(1);
            black_box(counter.compare(limit));
            counter.add(-1);
            Ok(())
        }
    };
    // Fewer than for adds: a comparison can be a sum, which takes microseconds.
    let slice = setting.slice(16, prepare)?;
    let sum = counter.sum();
    ensure!(sum == 0, "all was subtracted again, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}
