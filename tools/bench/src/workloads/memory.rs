//! `memory`: what a million counters take, or a million accounts, used from two CPUs.
//!
//! A process's resident size says what they take only if nothing else happened in it, so each
//! measurement is a child process, told so by [`CHILD`].
//!
//! Only contenders whose layout is their own take part. The kernel's designs and the floor are
//! padded arrays here, which says nothing about the layout their authors chose.

use std::{
    fmt, io,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Measured, Setting};
use crate::{
    children,
    contenders::{
        Name,
        counters::{self, for_counter},
        ledgers::{self, for_ledger},
    },
    cpus::Cpus,
    metric::{
        ACCOUNTS, COUNTERS, RESIDENT, RESIDENT_PER_ACCOUNT, RESIDENT_PER_COUNTER, TIME_PER_CREATE,
    },
    rss,
};

/// The subcommand, hidden from users, that a child is started with. Its argument is an [`ChildSpec`].
pub(crate) const CHILD: &str = "memory-child";

/// How long a child may take. The slowest, in a build that is not optimised, takes a minute.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// One thread for each of two CPUs.
pub(crate) const THREADS: usize = 2;

/// Adds by each thread to each counter: enough for any design to have spread over both CPUs.
const ADDS: i64 = 600;

/// Charges by each thread to each counter of each account. Then each account has been in a cache of each
/// CPU, and has left it.
const CHARGES: i64 = 1;

/// What there are many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    Counters,
    Accounts,
}

impl Many {
    const ALL: [Self; 2] = [Self::Counters, Self::Accounts];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Accounts => "accounts",
        }
    }

    /// Who takes part.
    pub(crate) const fn contenders(self) -> &'static [Name] {
        match self {
            Self::Counters => &[Name::Atomic, Name::Striped, Name::ThisCpu],
            Self::Accounts => &[Name::Atomic, Name::ThisCpu],
        }
    }
}

/// What a child is to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildSpec {
    many: Many,
    contender: Name,
    count: usize,
}

impl ChildSpec {
    /// A trial makes a hundredth. A striped counter takes 16 KiB, of which a million would not fit
    /// into most machines; what one takes does not depend on how many there are.
    fn new(many: Many, contender: Name, is_trial: bool) -> Self {
        let full = if contender == Name::Striped { 5_000 } else { 1_000_000 };
        let count = if is_trial { full / 100 } else { full };
        Self { many, contender, count }
    }
}

impl fmt::Display for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.many.as_str(), self.contender, self.count)
    }
}

impl FromStr for ChildSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or("want counters:NAME:COUNT or accounts:NAME:COUNT");
        let (many, contender, count) = (part()?, part()?.parse()?, part()?.parse());
        let is_named = |known: &Many| known.as_str() == many;
        let many = Many::ALL.into_iter().find(is_named).ok_or("want counters or accounts")?;
        if !many.contenders().contains(&contender) {
            return Err(format!("{contender} takes no part"));
        }
        Ok(Self { many, contender, count: count.map_err(|error| format!("{error}"))? })
    }
}

/// What a child reports.
#[derive(Debug, Serialize, Deserialize)]
struct Footprint {
    count: usize,
    resident_bytes: u64,
    create_ns: u64,
}

/// Does a child's work and returns what it is to print.
///
/// # Errors
///
/// When the contender is unavailable, or a sum is not what was added.
pub(crate) fn child(order: ChildSpec) -> Result<String> {
    ensure!(order.count > 0, "nothing to measure");
    let footprint = match order.many {
        Many::Counters => for_counter!(order.contender, C => of_counters::<C>(order.count))?,
        Many::Accounts => for_ledger!(order.contender, C => of_accounts::<C>(order.count))?,
    };
    Ok(serde_json::to_string(&footprint)?)
}

/// Has a child measure one contender.
pub(crate) fn measure(many: Many, contender: Name, setting: &Setting<'_>) -> Measured {
    let order = ChildSpec::new(many, contender, setting.is_trial);
    let footprint: Footprint = children::ask(CHILD, &order.to_string(), PATIENCE)?;
    let count = footprint.count as f64;
    let resident_bytes = footprint.resident_bytes as f64;
    let (counted, each) = match many {
        Many::Counters => (&COUNTERS, &RESIDENT_PER_COUNTER),
        Many::Accounts => (&ACCOUNTS, &RESIDENT_PER_ACCOUNT),
    };
    Ok(vec![
        counted.reads(count),
        each.reads(resident_bytes / count),
        RESIDENT.reads(resident_bytes / 1e6),
        TIME_PER_CREATE.reads(footprint.create_ns as f64 / count),
    ])
}

/// Makes counters, uses each from two CPUs, and sees what has become resident.
fn of_counters<C: counters::Contender>(count: usize) -> Result<Footprint> {
    let meter = Meter::begin()?;
    let mut counters = Vec::with_capacity(count);
    for _ in 0..count {
        counters.push(C::try_new()?);
    }
    let created_in = meter.elapsed();
    use_from_two_cpus(&counters, |counter| (0..ADDS).for_each(|_| counter.add(1)))?;
    let footprint = meter.end(count, created_in)?;
    for counter in some_of(&counters) {
        let (sum, added) = (counter.sum(), ADDS * THREADS as i64);
        ensure!(sum == added, "{added} was added, but the sum is {sum}");
    }
    Ok(footprint)
}

/// Opens accounts of a ledger, uses each from two CPUs, and sees what has become resident.
fn of_accounts<C: ledgers::Contender>(count: usize) -> Result<Footprint> {
    let meter = Meter::begin()?;
    let ledger = C::new(count);
    let mut accounts = Vec::with_capacity(count);
    accounts.extend((0..count).map(|_| ledger.open()));
    let created_in = meter.elapsed();
    use_from_two_cpus(&accounts, |account| {
        (0..ledgers::COUNTERS).for_each(|index| ledger.charge(account, index, CHARGES));
    })?;
    let footprint = meter.end(count, created_in)?;
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

/// About a thousand of `items`.
fn some_of<T>(items: &[T]) -> impl Iterator<Item = &T> {
    items.iter().step_by(items.len().div_ceil(1_000))
}

/// Uses every item from both threads, which begin at opposite ends of the circle so that they seldom
/// meet at one item.
fn use_from_two_cpus<T: Sync>(items: &[T], use_one: impl Fn(&T) + Sync) -> Result<()> {
    let cpus = Cpus::allowed()?;
    let (cpus, use_one) = (&cpus, &use_one);
    let used = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                scope.spawn(move || {
                    cpus.pin(index)?;
                    let (late, early) = items.split_at(items.len() * index / THREADS);
                    early.iter().chain(late).for_each(use_one);
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    });
    Ok(used?)
}

/// Sees how much memory becomes resident while it runs.
struct Meter {
    before_bytes: u64,
    started: Instant,
}

impl Meter {
    fn begin() -> Result<Self> {
        Ok(Self { before_bytes: rss::bytes()?, started: Instant::now() })
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn end(self, count: usize, created_in: Duration) -> Result<Footprint> {
        Ok(Footprint {
            count,
            resident_bytes: rss::bytes()?.saturating_sub(self.before_bytes),
            create_ns: created_in.as_nanos() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a child may be told to measure, but for the count.
    fn all() -> impl Iterator<Item = (Many, Name)> {
        Many::ALL
            .into_iter()
            .flat_map(|many| many.contenders().iter().map(move |&name| (many, name)))
    }

    #[test]
    fn orders_read_back() {
        for is_trial in [false, true] {
            for (many, contender) in all() {
                let order = ChildSpec::new(many, contender, is_trial);
                assert_eq!(order.to_string().parse(), Ok(order));
            }
        }
        for text in [
            "counters:thiscpu",
            "counters:nobody:5",
            "counters:thiscpu:many",
            "counters:kamezawa:5",
            "ledgers:thiscpu:5",
        ] {
            text.parse::<ChildSpec>().unwrap_err();
        }
    }

    #[test]
    fn a_child_reports_every_contender() {
        for (many, contender) in all() {
            let order = ChildSpec { many, contender, count: 20 };
            let report: Footprint = serde_json::from_str(&child(order).unwrap()).unwrap();
            assert_eq!(report.count, 20);
        }
    }
}
