//! `threshold`: every thread adds 1, compares with a limit that the value hovers at, and takes 1
//! away. One operation is the three together.

use std::hint::black_box;

use anyhow::ensure;

use super::{Measured, Setting, shared_counter};
use crate::{contenders::counters::Contender, metric::TIME_PER_OP, slice};

/// Operations between two looks at the stop flag. A comparison can be a sum that costs
/// microseconds, so this is less often than it could be for plain adds.
const STEP: u32 = 16;

/// Measures the time of one operation.
pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    // The value is the number of threads between their two adds: from none to all of them. A limit
    // in the middle is within reach at all times.
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
    ensure!(sum == 0, "all was taken away again, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns(setting.threads, setting.cpus)?)])
}
