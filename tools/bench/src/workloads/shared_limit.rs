//! `shared`: forked processes acquire units of one limit.

use super::{Measured, Setting};
use crate::{
    contenders::limits::{Attempt, Contender, LIMIT_MAX},
    metric::{GRANTED, TIME_PER_GRANT, TIME_PER_OP},
    processes::run,
    slice,
};

/// Measures an acquire and a release, with more units than processes need.
pub(crate) fn far<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure::<C>(setting, LIMIT_MAX)
}

/// Measures the attempt to acquire the only unit, and its release if it was acquired.
pub(crate) fn last<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure::<C>(setting, 1)
}

fn measure<C: Contender>(setting: &Setting<'_>, limit: u32) -> Measured {
    let attempt = Attempt::<C>::at(limit)?;
    let sleep = |_: &dyn Fn() -> u64| slice::sleep(setting.length);
    let slice = run(setting.cpus, setting.threads, &attempt, sleep)?;
    let (op_ns, granted) = (slice.op_ns()?, attempt.granted());
    Ok(vec![
        TIME_PER_OP.reads(op_ns),
        GRANTED.reads(granted * 100.0),
        TIME_PER_GRANT.reads(op_ns / granted),
    ])
}
