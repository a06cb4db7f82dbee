//! `threshold`: every thread adds 1, compares with a limit near the value, and subtracts 1. An
//! operation is all three.

use std::hint::black_box;

use anyhow::ensure;

use super::{Measured, Setting, shared_counter};
use crate::{contenders::counters::Contender, metric::TIME_PER_OP};

/// The number of operations between two checks of the stop flag.
///
/// It is smaller than for adds: a comparison can be a sum, which takes microseconds.
const STEP: u32 = 16;

/// Measures the time of an operation.
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
    let slice = setting.slice(STEP, prepare)?;
    let sum = counter.sum();
    ensure!(sum == 0, "all was subtracted again, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}
