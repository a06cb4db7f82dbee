//! `object`: objects are allocated and freed.
//!
//! | case | an operation |
//! |---|---|
//! | `pair-8` to `pair-16384` | one object of so many bytes allocated and freed |
//! | `burst-64`, `burst-1024` | the same, but a thread allocates 10,000 of them, and then frees them in that order |
//! | `remote-64` | an object allocated on one CPU and freed on another |
//! | `churn-64` | one allocated, and a random one of 16 that the thread has freed, by many threads a CPU |
//! | `resident-64` | not timed: 64 threads allocate an object of each of 31 sizes, and then do nothing |
//!
//! The first eight bytes of each object are written. Each slice is a child process in which one contender
//! allocates and the others do not, so that none distorts another's memory; this program's own memory is the C
//! library's in all of them.

use std::{fmt, str::FromStr, time::Duration};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Measured, Setting};
use crate::{
    children,
    contenders::{
        Name,
        allocators::{self, for_allocator},
    },
    cpus::Cpus,
    metric::{RESIDENT_BYTES, TIME_PER_OP},
};

mod laps;
mod remote;
mod resident;
mod timed;
mod touch;

/// The subcommand, hidden from users, that a child is started with. Its argument is an [`ChildSpec`].
pub(crate) const CHILD: &str = "alloc-child";

/// What is done to objects, and what that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocCase {
    name: &'static str,
    what: What,
}

/// What is done to objects of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Pair(usize),
    Burst(usize),
    Remote(usize),
    Churn(usize),
    Resident,
}

impl AllocCase {
    pub(crate) const ALL: [Self; 17] = [
        Self::new("pair-8", What::Pair(8)),
        Self::new("pair-16", What::Pair(16)),
        Self::new("pair-32", What::Pair(32)),
        Self::new("pair-64", What::Pair(64)),
        Self::new("pair-128", What::Pair(128)),
        Self::new("pair-256", What::Pair(256)),
        Self::new("pair-512", What::Pair(512)),
        Self::new("pair-1024", What::Pair(1024)),
        Self::new("pair-2048", What::Pair(2048)),
        Self::new("pair-4096", What::Pair(4096)),
        Self::new("pair-8192", What::Pair(8192)),
        Self::new("pair-16384", What::Pair(16384)),
        Self::new("burst-64", What::Burst(64)),
        Self::new("burst-1024", What::Burst(1024)),
        Self::new("remote-64", What::Remote(64)),
        Self::new("churn-64", What::Churn(64)),
        Self::RESIDENT,
    ];

    const RESIDENT: Self = Self::new("resident-64", What::Resident);

    const fn new(name: &'static str, what: What) -> Self {
        Self { name, what }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    /// What is done in it, in a sentence without its full stop.
    pub(crate) const fn what(self) -> &'static str {
        match self.what {
            What::Pair(_) => "One object of so many bytes allocated and freed",
            What::Burst(_) => "10,000 objects of so many bytes allocated, then freed",
            What::Remote(_) => "Objects of 64 bytes allocated by one thread and freed by another",
            What::Churn(_) => {
                "An object of 64 bytes allocated, and a random one of the thread's 16 freed"
            }
            What::Resident => {
                "Resident memory while each thread has 31 objects, 16 bytes to 16 KiB"
            }
        }
    }

    /// Whether it is one of those that a run of all workloads has time for.
    pub(crate) const fn runs_by_default(self) -> bool {
        match self.what {
            What::Pair(size) | What::Burst(size) => size == 64,
            What::Remote(_) | What::Churn(_) | What::Resident => true,
        }
    }

    /// Whether it is about memory, not time.
    pub(crate) const fn measures_memory(self) -> bool {
        matches!(self.what, What::Resident)
    }

    /// The numbers of threads it runs with when `asked` names none, or in spite of it.
    pub(crate) fn threads(self, asked: &[usize]) -> Vec<usize> {
        let by_default: &[usize] = match self.what {
            What::Pair(_) | What::Burst(_) => &[1, 2],
            What::Churn(_) => &[64],
            What::Remote(_) => return vec![remote::THREADS],
            What::Resident => return vec![resident::THREADS],
        };
        if asked.is_empty() { by_default } else { asked }.to_vec()
    }

    /// Who takes part.
    pub(crate) const fn contenders(self) -> &'static [Name] {
        match self.what {
            What::Resident => allocators::OF_ANY_SIZE,
            _ => allocators::ALL,
        }
    }
}

/// What a child is to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildSpec {
    case: AllocCase,
    /// [`Name::Nothing`] for what there is without any objects.
    contender: Name,
    threads: usize,
    length: Duration,
}

impl fmt::Display for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, contender, threads, length } = self;
        write!(f, "{}:{contender}:{threads}:{}", case.name, length.as_nanos())
    }
}

impl FromStr for ChildSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [case, contender, threads, length_ns] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err("want CASE:NAME:THREADS:NANOSECONDS".to_owned());
        };
        let is_named = |known: &AllocCase| known.name == case;
        let case = AllocCase::ALL.into_iter().find(is_named).ok_or("no case has that name")?;
        let contender = match contender {
            "none" if case.measures_memory() => Name::Nothing,
            name => name.parse()?,
        };
        if contender != Name::Nothing && !case.contenders().contains(&contender) {
            return Err(format!("{contender} takes no part"));
        }
        contender.available().map_err(|why| format!("{why:#}"))?;
        let threads = crate::plan::parse_threads(threads)?;
        let length_ns = length_ns.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { case, contender, threads, length: Duration::from_nanos(length_ns) })
    }
}

/// What a child reports: nanoseconds an operation took, or bytes that are resident.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    value: f64,
}

/// Does a child's work and returns what it is to print.
///
/// # Errors
///
/// When the system refuses a thread or a CPU, or nothing was done in the time there was.
pub(crate) fn child(order: ChildSpec) -> Result<String> {
    let cpus = &Cpus::allowed()?;
    let ChildSpec { case, mut contender, threads, length } = order;
    if contender == Name::ThisCpuHardened {
        allocators::harden()?;
        contender = Name::ThisCpuMalloc;
    }
    let value = match (case.what, contender) {
        (_, Name::Nothing) => resident::resident_bytes::<allocators::Glibc>(cpus, &[])? as f64,
        (What::Resident, name) => {
            for_allocator!(name, A => resident::resident_bytes::<A>(cpus, &resident::SIZES))? as f64
        }
        (What::Pair(size), name) => {
            for_allocator!(name, A => timed::pair::<A>(cpus, threads, length, size))?
        }
        (What::Burst(size), name) => {
            for_allocator!(name, A => timed::burst::<A>(cpus, threads, length, size))?
        }
        (What::Churn(size), name) => {
            for_allocator!(name, A => timed::churn::<A>(cpus, threads, length, size))?
        }
        (What::Remote(size), name) => {
            for_allocator!(name, A => remote::measure::<A>(cpus, length, size))?
        }
    };
    Ok(serde_json::to_string(&Answer { value })?)
}

/// Has a child measure one contender.
pub(crate) fn measure(case: AllocCase, contender: Name, setting: &Setting<'_>) -> Measured {
    let order = ChildSpec { case, contender, threads: setting.threads, length: setting.length };
    let value = ask(order)?;
    Ok(vec![if case.measures_memory() {
        let without_objects = ask(ChildSpec { contender: Name::Nothing, ..order })?;
        RESIDENT_BYTES.reads(value - without_objects)
    } else {
        TIME_PER_OP.reads(value)
    }])
}

/// A child's value, which has to come within a minute of what its slice takes: threads that are many and have
/// to take turns may need some of it to begin and to end.
fn ask(order: ChildSpec) -> Result<f64> {
    let patience = order.length * 2 + Duration::from_secs(60);
    children::ask(CHILD, &order.to_string(), patience).map(|Answer { value }| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a child may be told to measure, briefly.
    fn orders() -> impl Iterator<Item = ChildSpec> {
        let length = Duration::from_millis(10);
        let order = move |case: AllocCase, contender| {
            let threads = case.threads(&[2])[0];
            ChildSpec { case, contender, threads, length }
        };
        let of_scene =
            move |case: AllocCase| case.contenders().iter().map(move |&name| order(case, name));
        let baseline = order(AllocCase::RESIDENT, Name::Nothing);
        let orders = AllocCase::ALL.into_iter().flat_map(of_scene).chain([baseline]);
        orders.filter(|order| order.contender.available().is_ok())
    }

    #[test]
    fn orders_read_back() {
        for order in orders() {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for text in [
            "pair-64:glibc:2",
            "pair-64:glibc:2:5:5",
            "pair-65:glibc:2:5",
            "pair-64:none:2:5",
            "pair-64:atomic:2:5",
            "resident-64:slub-tid:64:5",
            "pair-64:glibc:0:5",
            "pair-64:glibc:2:soon",
        ] {
            text.parse::<ChildSpec>().unwrap_err();
        }
    }

    #[test]
    fn a_child_reports_every_contender_in_every_case() {
        for order in orders() {
            let Answer { value } = serde_json::from_str(&child(order).unwrap()).unwrap();
            assert!(value > 0.0, "{order}: {value}");
        }
    }
}
