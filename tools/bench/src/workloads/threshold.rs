//! `threshold`: every thread adds 1, compares with a limit near the value, and subtracts 1.
//!
//! These three calls together are one operation.

use std::hint::black_box;

use anyhow::ensure;

use super::{Measured, Setting, shared_counter};
use crate::{contenders::counters::Contender, metric::TIME_PER_OP, slice};

/// Operations between two checks of the stop flag.
///
/// A comparison can be a sum that takes microseconds, so a step has fewer operations than for plain
/// adds.
const STEP: u32 = 16;

/// Measures the time of one operation.
pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    // The value is the number of threads that are between their two adds: none to all. A limit in
    // the middle is always near it.
    let limit = (setting.threads as i64 / 2).max(1);
    let prepare = |_| {
        || {
            counter.add(1);
            black_box(counter.compare(limit));
            counter.add(-1);
            Ok(())
        }
    };
    let conduct = slice::lasting(setting.length);
    let slice = slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)?;
    let sum = counter.sum();
    ensure!(sum == 0, "every add was subtracted again, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns(setting.threads, setting.cpus)?)])
}
