//! `memory`: what a million counters, or a million accounts, cost when used from two CPUs.
//!
//! A process's resident size tells that only if nothing else happened in it, so each measurement is
//! a child process, started with the subcommand [`CHILD`].
//!
//! Only contenders with a layout of their own take part. The kernel's designs and the lower
//! bound are padded arrays here, which says nothing about the layout that their authors chose.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Measured, Setting};
use crate::{
    children,
    contenders::{Name, counters, ledgers},
    cpus::Cpus,
    metric::{
        ACCOUNTS, COUNTERS, RESIDENT, RESIDENT_PER_ACCOUNT, RESIDENT_PER_COUNTER, TIME_PER_CREATE,
    },
    rss,
};

/// The hidden subcommand that a child is started with.
pub(crate) const CHILD: &str = "memory-child";

/// The time limit of a child. The slowest, in a build that is not optimized, takes a minute.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// One thread on each of two CPUs.
pub(crate) const THREADS: usize = 2;

/// Adds by each thread to each counter: enough for any design to use memory of both CPUs.
const ADDS: i64 = 600;

/// Charges by each thread to each counter of each account.
///
/// After them, each account has been in a cache of each CPU and was evicted.
const CHARGES: i64 = 1;

/// The structure that many are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Many {
    Counters,
    Accounts,
}

impl Many {
    pub(crate) const fn contenders(self) -> &'static [Name] {
        match self {
            Self::Counters => &[Name::Atomic, Name::Striped, Name::ThisCpu],
            Self::Accounts => &[Name::Atomic, Name::ThisCpu],
        }
    }

    /// Measures one contender in a child.
    pub(crate) fn measure(self, setting: &Setting<'_>) -> Measured {
        let spec = ChildSpec::new(self, setting.contender, setting.is_trial);
        let footprint: Footprint = children::ask(CHILD, &spec, PATIENCE)?;
        let count = footprint.count as f64;
        let resident_bytes = footprint.resident_bytes as f64;
        let (counted, each) = match self {
            Self::Counters => (&COUNTERS, &RESIDENT_PER_COUNTER),
            Self::Accounts => (&ACCOUNTS, &RESIDENT_PER_ACCOUNT),
        };
        Ok(vec![
            counted.reads(count),
            each.reads(resident_bytes / count),
            RESIDENT.reads(resident_bytes / 1e6),
            TIME_PER_CREATE.reads(footprint.create_ns as f64 / count),
        ])
    }
}

/// The measurement that a child makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildSpec {
    many: Many,
    contender: Name,
    count: usize,
}

impl ChildSpec {
    /// Makes the spec of a full measurement, or of a trial, which makes a hundredth.
    ///
    /// A striped counter takes 16 KiB, and few machines have room for a million. What one takes
    /// does not depend on how many there are.
    fn new(many: Many, contender: Name, is_trial: bool) -> Self {
        let full = if contender == Name::Striped { 5_000 } else { 1_000_000 };
        let count = if is_trial { full / 100 } else { full };
        Self { many, contender, count }
    }

    /// Reads the argument of a child.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let spec: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !spec.many.contenders().contains(&spec.contender) || spec.count == 0 {
            let name = spec.contender;
            return Err(format!("{name} cannot run it, or there is nothing to measure"));
        }
        Ok(spec)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Footprint {
    count: usize,
    resident_bytes: u64,
    create_ns: u64,
}

pub(crate) fn child(spec: &ChildSpec) -> Result<String> {
    let footprint = match spec.many {
        Many::Counters => counters::dispatch!(spec.contender, C => of_counters::<C>(spec.count))?,
        Many::Accounts => ledgers::dispatch!(spec.contender, C => of_accounts::<C>(spec.count))?,
    };
    Ok(serde_json::to_string(&footprint)?)
}

fn of_counters<C: counters::Contender>(count: usize) -> Result<Footprint> {
    let add = |(): &(), counter: &C| (0..ADDS).for_each(|_| counter.add(1));
    let (footprint, (), counters) = footprint(count, || (), |()| C::try_new(), add)?;
    for counter in some_of(&counters) {
        let (sum, added) = (counter.sum(), ADDS * THREADS as i64);
        ensure!(sum == added, "{added} was added, but the sum is {sum}");
    }
    Ok(footprint)
}

fn of_accounts<C: ledgers::Contender>(count: usize) -> Result<Footprint> {
    let charge = |ledger: &C, account: &C::Account| {
        (0..ledgers::COUNTERS).for_each(|index| ledger.charge(account, index, CHARGES));
    };
    let (footprint, ledger, accounts) =
        footprint(count, || C::new(count), |ledger| Ok(ledger.open()), charge)?;
    ledger.sync();
    for account in some_of(&accounts) {
        let charged = CHARGES * THREADS as i64;
        for index in 0..ledgers::COUNTERS {
            let value = ledger.read(account, index);
            ensure!(value == charged, "{charged} was charged, but counter {index} is {value}");
        }
    }
    Ok(footprint)
}

/// Returns about a thousand of `items`.
fn some_of<T>(items: &[T]) -> impl Iterator<Item = &T> {
    items.iter().step_by(items.len().div_ceil(1_000))
}

/// Makes items, uses each from two CPUs, and measures the memory that became resident.
///
/// The two threads start far apart, so that they seldom meet.
fn footprint<L: Sync, T: Sync>(
    count: usize,
    begin: impl FnOnce() -> L,
    make: impl Fn(&L) -> Result<T>,
    use_one: impl Fn(&L, &T) + Sync,
) -> Result<(Footprint, L, Vec<T>)> {
    let (before_bytes, started) = (rss::bytes()?, Instant::now());
    let (ledger, mut items) = (begin(), Vec::with_capacity(count));
    for _ in 0..count {
        items.push(make(&ledger)?);
    }
    let create_ns = started.elapsed().as_nanos() as u64;
    Cpus::allowed()?.on_each(THREADS, |index| {
        let (late, early) = items.split_at(count * index / THREADS);
        early.iter().chain(late).for_each(|item| use_one(&ledger, item));
    })?;
    let resident_bytes = rss::bytes()?.saturating_sub(before_bytes);
    Ok((Footprint { count, resident_bytes, create_ns }, ledger, items))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every structure with every contender that has it.
    fn all() -> impl Iterator<Item = (Many, Name)> {
        let of = |many: Many| many.contenders().iter().map(move |&name| (many, name));
        [Many::Counters, Many::Accounts].into_iter().flat_map(of)
    }

    #[test]
    fn child_specs_parse_back_and_bad_ones_are_refused() {
        for (many, contender) in all() {
            let spec = ChildSpec::new(many, contender, true);
            assert_eq!(ChildSpec::parse(&serde_json::to_string(&spec).unwrap()), Ok(spec));
        }
        for (many, contender, count) in [
            ("counters", "nobody", "5"),
            ("counters", "thiscpu", "\"many\""),
            ("counters", "thiscpu", "0"),
            ("counters", "kamezawa", "5"),
            ("ledgers", "thiscpu", "5"),
        ] {
            let text = format!(r#"{{"many":"{many}","contender":"{contender}","count":{count}}}"#);
            ChildSpec::parse(&text).unwrap_err();
        }
    }

    #[test]
    fn children_measure_every_contender() {
        for (many, contender) in all() {
            let answer = child(&ChildSpec { many, contender, count: 20 }).unwrap();
            let footprint: Footprint = serde_json::from_str(&answer).unwrap();
            assert_eq!(footprint.count, 20);
        }
    }
}
