//! `budget`: writers that allocate blocks from a shared amount, and free them.
//!
//! | case | an operation | the limit |
//! |---|---|---|
//! | `far` | one block allocated and freed | out of reach |
//! | `near` | a call that allocates or frees 1 to 64 blocks | what all writers may hold together, so that no refusal can be right; the free amount swings between none and a batch of 1,024 for each CPU |
//! | `oscillate` | such a call | 64 batches for each CPU; a writer allocates until it is refused, and then frees all: the free amount is now plentiful and now gone |
//! | `exhausted` | such a call | 256 blocks for each writer, who frees when it was refused: about half of the calls that allocate are refused |
//!
//! In the last three, after the timed slice, a second one is not timed but audited: there each call is checked
//! against oracle that all writers keep. What a writer does to remember its blocks is part of the time, for all
//! contenders alike.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::ensure;
use thiscpu_test_support::tool::stop;

mod audit;
mod writer;

use self::{
    audit::Audit,
    writer::{FreePolicy, Writer},
};
use super::{Measured, Setting};
use crate::{
    contenders::{Padded, budgets::Contender},
    metric::{AUDITED, OVER_GRANTS, RECALLS_PER_SECOND, REFUSED, TIME_PER_OP, WRONG_REFUSALS},
    slice,
};

/// Operations between two looks at the stop flag.
const STEP: u32 = 64;

/// What lanes borrow at once, in the kernel's design and in ours.
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
    let conduct = slice::lasting(setting.length);
    let slice = slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)?;
    ensure!(budget.available() == limit as i64, "{} are free of {limit}", budget.available());
    Ok(vec![TIME_PER_OP.reads(slice.op_ns(setting.threads, setting.cpus)?)])
}

/// Measures the time of a call near the limit, and audits such calls.
pub(crate) fn near<C: Contender>(setting: &Setting<'_>) -> Measured {
    let each = share(setting, BATCH);
    in_reach::<C>(setting, each, FreePolicy::AtMost(each))
}

/// The same where the free amount goes from plenty to nothing and back.
pub(crate) fn oscillate<C: Contender>(setting: &Setting<'_>) -> Measured {
    in_reach::<C>(setting, share(setting, 64 * BATCH), FreePolicy::AllWhenRefused)
}

/// The share of each writer, where there is so much for each CPU.
fn share(setting: &Setting<'_>, for_each_cpu: u64) -> u64 {
    (for_each_cpu * setting.cpus.len() as u64 / setting.threads as u64).max(64)
}

/// Measures the time of a call at the limit, and audits such calls.
pub(crate) fn exhausted<C: Contender>(setting: &Setting<'_>) -> Measured {
    let share = BATCH / 4;
    in_reach::<C>(setting, share, FreePolicy::WhenRefused(share + share / 2))
}

/// Writers with a limit of so much for `each`.
fn in_reach<C: Contender>(setting: &Setting<'_>, each: u64, policy: FreePolicy) -> Measured {
    let limit = each * setting.threads as u64;
    let budget = Padded::new(C::new(limit));
    let timed = {
        let prepare = |index| {
            let mut writer = Writer::new(&*budget, index, policy);
            move || {
                writer.turn();
                Ok(())
            }
        };
        let conduct = || {
            let before = budget.recalls();
            slice::sleep(setting.length)?;
            Ok(budget.recalls().map(|recalls| recalls - before.unwrap_or_default()))
        };
        slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)?
    };
    ensure!(budget.available() == limit as i64, "{} are free of {limit}", budget.available());
    let mut readings = vec![TIME_PER_OP.reads(timed.op_ns(setting.threads, setting.cpus)?)];
    let per_second = |recalls: u64| recalls as f64 / timed.elapsed.as_secs_f64();
    readings.extend(timed.outcome.map(|recalls| RECALLS_PER_SECOND.reads(per_second(recalls))));
    let oracle = audited(setting, &*budget, limit, policy)?;
    ensure!(
        !C::IS_RIGHT || (oracle.over_grants(), oracle.wrong_refusals()) == (0, 0),
        "{} grants past the limit and {} wrong refusals in {} calls",
        oracle.over_grants(),
        oracle.wrong_refusals(),
        oracle.calls()
    );
    readings.extend([
        OVER_GRANTS.reads(oracle.over_grants() as f64),
        WRONG_REFUSALS.reads(oracle.wrong_refusals() as f64),
        AUDITED.reads(oracle.calls() as f64),
        REFUSED.reads(oracle.refused_percent()),
    ]);
    Ok(readings)
}

/// The same writers with an auditor between them and the budget.
fn audited<'a, C: Contender>(
    setting: &Setting<'_>,
    budget: &'a C,
    limit: u64,
    policy: FreePolicy,
) -> anyhow::Result<Audit<'a, C>> {
    const SHARE: u32 = 4;
    let audit = Audit::new(budget, limit, matches!(policy, FreePolicy::AtMost(_)));
    let prepare = |index| {
        let mut writer = Writer::new(&audit, index, policy);
        move || {
            writer.turn();
            Ok(())
        }
    };
    let conduct = || {
        let began = Instant::now();
        stop::sleep(setting.length / SHARE);
        while audit.calls() < setting.audited_min && !stop::is_requested() {
            setting.progress.audited(audit.calls(), setting.audited_min, began.elapsed());
            stop::sleep(Duration::from_millis(10));
        }
        Ok(())
    };
    slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)?;
    Ok(audit)
}
