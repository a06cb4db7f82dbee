//! `add`: every thread adds 1 to one counter, as fast as it can.

use anyhow::ensure;

use super::{Measured, Setting, shared_counter};
use crate::{contenders::counters::Contender, metric::TIME_PER_OP};

/// Measures the time of an add. Fails if one was lost.
pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    let prepare = |_| {
        || {
            counter.add(1);
            Ok(())
        }
    };
    let slice = setting.slice(256, prepare)?;
    let (sum, added) = (counter.sum(), slice.all_ops as i64);
    ensure!(sum == added, "{added} was added, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}
