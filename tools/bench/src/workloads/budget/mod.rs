//! `budget`: writers that allocate blocks from a shared amount and free them.
//!
//! | case | an operation | the limit |
//! |---|---|---|
//! | `far` | one block allocated and freed | out of reach |
//! | `near` | a call that allocates or frees 1 to 64 blocks | all that writers may hold |
//! | `oscillate` | such a call | 64 batches per CPU |
//! | `exhausted` | such a call | 256 blocks per writer |
//!
//! In `near` every refusal is wrong; the available amount varies between 0 and a batch of 1,024 per
//! CPU. In `oscillate` a writer allocates until it is refused, then frees all. So the available
//! amount alternates between plenty and none. In `exhausted` a writer frees when it was refused, so
//! about half of the allocations fail.
//!
//! The last three have a second slice after the timed one, which is not timed but audited: an
//! oracle that all writers share checks each call. The time includes a writer's own bookkeeping,
//! which is the same for all contenders.

mod audit;
mod writer;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::ensure;
use thiscpu_test_support::tool::stop;

use self::{
    audit::Audit,
    writer::{FreePolicy, Writer},
};
use super::{Measured, Setting};
use crate::{
    contenders::{Padded, budgets::Contender},
    metric::{RECALLS_PER_SECOND, Reading, TIME_PER_OP},
    slice::{self, Slice},
};

/// The number of operations between two checks of the stop flag.
const STEP: u32 = 64;

/// The units that lanes borrow at once, in the kernel's design and in ours.
const BATCH: u64 = 1024;

/// Measures the time of allocating one block and freeing it.
pub(crate) fn far<C: Contender>(setting: &Setting<'_>) -> Measured {
    let limit = 1 << 40;
    let budget = Padded::new(C::new(limit));
    let prepare = |_| {
        || {
            ensure!(black_box(budget.try_acquire(1)), "refused far from the limit");
            budget.release(1);
            Ok(())
        }
    };
    let slice = setting.slice(STEP, prepare)?;
    ensure_all_available(&*budget, limit)?;
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}

/// Measures the time of a call near the limit, and audits such calls.
pub(crate) fn near<C: Contender>(setting: &Setting<'_>) -> Measured {
    let each = share(setting, BATCH);
    within_limit::<C>(setting, each, FreePolicy::AtMost(each))
}

/// Measures the time of a call while the available amount alternates, and audits such calls.
pub(crate) fn oscillate<C: Contender>(setting: &Setting<'_>) -> Measured {
    within_limit::<C>(setting, share(setting, 64 * BATCH), FreePolicy::AllWhenRefused)
}

/// Returns the share of each writer, given the units per CPU.
fn share(setting: &Setting<'_>, per_cpu: u64) -> u64 {
    (per_cpu * setting.cpus.len() as u64 / setting.threads as u64).max(64)
}

/// Measures the time of a call at the limit, and audits such calls.
pub(crate) fn exhausted<C: Contender>(setting: &Setting<'_>) -> Measured {
    let share = BATCH / 4;
    within_limit::<C>(setting, share, FreePolicy::WhenRefused(share + share / 2))
}

/// Measures writers under a limit of `each` units per writer.
fn within_limit<C: Contender>(setting: &Setting<'_>, each: u64, policy: FreePolicy) -> Measured {
    let limit = each * setting.threads as u64;
    let budget = Padded::new(C::new(limit));
    let conduct = || {
        let before = budget.recalls();
        stop::sleep(setting.length);
        Ok(budget.recalls().map(|recalls| recalls - before.unwrap_or_default()))
    };
    let timed = write(setting, &*budget, policy, conduct)?;
    ensure_all_available(&*budget, limit)?;
    let mut readings = vec![TIME_PER_OP.reads(timed.op_ns()?)];
    let per_second = |recalls: u64| recalls as f64 / timed.elapsed.as_secs_f64();
    readings.extend(timed.outcome.map(|recalls| RECALLS_PER_SECOND.reads(per_second(recalls))));
    readings.extend(audited(setting, &*budget, limit, policy)?);
    Ok(readings)
}

/// Runs a slice of writers.
fn write<C: Contender, T>(
    setting: &Setting<'_>,
    budget: &C,
    policy: FreePolicy,
    conduct: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Slice<T>> {
    let prepare = |index| {
        let mut writer = Writer::new(budget, index, policy);
        move || {
            writer.step();
            Ok(())
        }
    };
    slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)
}

fn ensure_all_available(budget: &impl Contender, limit: u64) -> anyhow::Result<()> {
    let available = budget.available();
    ensure!(available == limit as i64, "{available} are available of {limit}");
    Ok(())
}

/// Runs the writers with an auditor between them and the budget.
fn audited<C: Contender>(
    setting: &Setting<'_>,
    budget: &C,
    limit: u64,
    policy: FreePolicy,
) -> anyhow::Result<[Reading; 4]> {
    const SHARE: u32 = 4;
    let audit = Audit::new(budget, limit, matches!(policy, FreePolicy::AtMost(_)));
    let conduct = || {
        let began = Instant::now();
        stop::sleep(setting.length / SHARE);
        // After a failure, more calls would tell nothing new.
        while audit.check().is_ok() && audit.calls() < setting.audited_min && !stop::is_requested()
        {
            setting.progress.audited(audit.calls(), setting.audited_min, began.elapsed());
            stop::sleep(Duration::from_millis(10));
        }
        Ok(())
    };
    write(setting, &audit, policy, conduct)?;
    audit.check()?;
    ensure_all_available(budget, limit)?;
    Ok(audit.readings())
}
