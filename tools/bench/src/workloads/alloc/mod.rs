//! `alloc`: objects are allocated and freed.
//!
//! | case | an operation |
//! |---|---|
//! | `pair-8` to `pair-4194304` | one object of that many bytes allocated and freed |
//! | `burst-64`, `burst-1024` | one of 10,000 objects, allocated and then freed in that order |
//! | `remote-64` to `remote-4194304` | an object allocated on one CPU and freed on another |
//! | `churn-64` | an object allocated and a random one of the thread's 16 freed, by many threads |
//! | `random-262144` | like `churn-64`, with objects of a random size from 32 KiB to 256 KiB |
//! | `resident-64` | not timed: 64 threads have an object of each of 31 sizes and do nothing |
//!
//! The first eight bytes of each object are written. Each slice is a child process in which one
//! contender allocates and the others do not, so that none distorts another's memory. The program's
//! own memory comes from the C library in all of them.

mod laps;
mod remote;
mod resident;
mod timed;
mod touch;

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Info, Measured, Setting, Threads, Workload};
use crate::{
    children,
    contenders::{Name, allocators},
    cpus::Cpus,
    metric::{RESIDENT_BYTES, TIME_PER_OP},
};

/// The hidden subcommand that a child is started with.
pub(crate) const CHILD: &str = "alloc-child";

/// A case: a pattern of calls, with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AllocCase(&'static str, Pattern);

const KIB: usize = 1024;

/// A pattern of calls, with the size of its objects in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pattern {
    Pair(usize),
    /// Large objects, which not every contender allocates.
    PairLarge(usize),
    Burst(usize),
    Remote(usize),
    /// Large objects, of which fewer are in flight at once.
    RemoteLarge(usize),
    Churn(usize),
    /// Objects of random sizes: the smallest and the largest.
    Random(usize, usize),
    Resident,
}

impl AllocCase {
    pub(crate) const ALL: [Self; 25] = [
        Self("pair-8", Pattern::Pair(8)),
        Self("pair-16", Pattern::Pair(16)),
        Self("pair-32", Pattern::Pair(32)),
        Self("pair-64", Pattern::Pair(64)),
        Self("pair-128", Pattern::Pair(128)),
        Self("pair-256", Pattern::Pair(256)),
        Self("pair-512", Pattern::Pair(512)),
        Self("pair-1024", Pattern::Pair(1024)),
        Self("pair-2048", Pattern::Pair(2048)),
        Self("pair-4096", Pattern::Pair(4096)),
        Self("pair-8192", Pattern::Pair(8192)),
        Self("pair-16384", Pattern::Pair(16384)),
        Self("pair-65536", Pattern::PairLarge(64 * KIB)),
        Self("pair-262144", Pattern::PairLarge(256 * KIB)),
        Self("pair-1048576", Pattern::PairLarge(1024 * KIB)),
        Self("pair-4194304", Pattern::PairLarge(4096 * KIB)),
        Self("burst-64", Pattern::Burst(64)),
        Self("burst-1024", Pattern::Burst(1024)),
        Self("remote-64", Pattern::Remote(64)),
        Self("remote-65536", Pattern::RemoteLarge(64 * KIB)),
        Self("remote-1048576", Pattern::RemoteLarge(1024 * KIB)),
        Self("remote-4194304", Pattern::RemoteLarge(4096 * KIB)),
        Self("churn-64", Pattern::Churn(64)),
        Self("random-262144", Pattern::Random(32 * KIB, 256 * KIB)),
        Self("resident-64", Pattern::Resident),
    ];

    pub(crate) const fn info(self) -> Info {
        let (threads, what) = match self.1 {
            Pattern::Pair(_) | Pattern::PairLarge(_) => {
                (Threads::Default(&[1, 2]), "One object allocated and freed")
            }
            Pattern::Burst(_) => {
                (Threads::Default(&[1, 2]), "10,000 objects allocated, then freed")
            }
            Pattern::Remote(_) => (
                Threads::Fixed(remote::THREADS),
                "Objects allocated by one thread and freed by another, in batches of 64",
            ),
            Pattern::RemoteLarge(_) => (
                Threads::Fixed(remote::THREADS),
                "Objects allocated by one thread and freed by another, in batches of 8",
            ),
            Pattern::Churn(_) => (
                Threads::Default(&[64]),
                "One object allocated and a random one of the thread's 16 freed",
            ),
            Pattern::Random(..) => (
                Threads::Default(&[1, 2]),
                "One object of 32 to 256 KiB allocated and a random one of the thread's 16 freed",
            ),
            Pattern::Resident => (
                Threads::Fixed(resident::THREADS),
                "Not timed: resident memory of 31 objects per thread, 16 bytes to 16 KiB",
            ),
        };
        let contenders = match self.1 {
            Pattern::PairLarge(_)
            | Pattern::RemoteLarge(_)
            | Pattern::Random(..)
            | Pattern::Resident => allocators::OF_ANY_SIZE,
            Pattern::Pair(_) | Pattern::Burst(_) | Pattern::Remote(_) | Pattern::Churn(_) => {
                allocators::ALL
            }
        };
        Info { workload: Workload::Alloc, name: self.0, threads, contenders, what }
    }

    pub(crate) const fn runs_by_default(self) -> bool {
        match self.1 {
            Pattern::Pair(size) | Pattern::Burst(size) => size == 64,
            Pattern::PairLarge(_) | Pattern::RemoteLarge(_) | Pattern::Random(..) => false,
            Pattern::Remote(_) | Pattern::Churn(_) | Pattern::Resident => true,
        }
    }

    /// Returns whether the case measures memory instead of time.
    pub(crate) const fn measures_memory(self) -> bool {
        matches!(self.1, Pattern::Resident)
    }
}

/// The measurement that a child makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildSpec {
    case: String,
    /// [`Name::Nothing`] for the memory that is resident without any objects.
    contender: Name,
    threads: usize,
    length: Duration,
}

impl ChildSpec {
    /// Reads the argument of a child.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let spec: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Self { case, contender, threads, .. } = &spec;
        let known = spec.known_case().ok_or_else(|| format!("no case is named {case:?}"))?;
        let is_baseline = *contender == Name::Nothing && known.measures_memory();
        if !is_baseline && !known.info().contenders.contains(contender) {
            return Err(format!("{contender} cannot run {case}"));
        }
        contender.available().map_err(|why| format!("{why:#}"))?;
        if *threads == 0 {
            return Err("expected a thread".to_owned());
        }
        Ok(spec)
    }

    fn known_case(&self) -> Option<AllocCase> {
        AllocCase::ALL.into_iter().find(|known| known.0 == self.case)
    }
}

/// Makes a child's measurement and returns nanoseconds per operation, or bytes, as JSON.
pub(crate) fn child(spec: &ChildSpec) -> Result<String> {
    let cpus = &Cpus::allowed()?;
    let pattern = spec.known_case().expect("`parse` has looked it up").1;
    if spec.contender == Name::ThisCpuHardened {
        allocators::harden()?;
    }
    let value = match spec.contender {
        Name::Nothing => resident::resident_bytes::<allocators::Glibc>(cpus, &[]),
        name => allocators::dispatch!(name, A => match pattern {
            Pattern::Pair(size) | Pattern::PairLarge(size) => timed::pair::<A>(cpus, spec, size),
            Pattern::Burst(size) => timed::burst::<A>(cpus, spec, size),
            Pattern::Churn(size) => timed::churn::<A>(cpus, spec, size),
            Pattern::Random(min, max) => timed::random::<A>(cpus, spec, min..=max),
            Pattern::Remote(size) => remote::measure::<A, 64>(cpus, spec.length, size),
            Pattern::RemoteLarge(size) => remote::measure::<A, 8>(cpus, spec.length, size),
            Pattern::Resident => resident::resident_bytes::<A>(cpus, &resident::SIZES),
        }),
    }?;
    Ok(serde_json::to_string(&value)?)
}

/// Measures one contender in a child.
pub(crate) fn measure(case: AllocCase, setting: &Setting<'_>) -> Measured {
    let (threads, length) = (setting.threads, setting.length);
    let ask = |contender| {
        let case = case.0.to_owned();
        let spec = ChildSpec { case, contender, threads, length };
        // Many threads that share CPUs may need some of the extra minute to begin and to end.
        children::ask::<f64>(CHILD, &spec, length * 2 + Duration::from_secs(60))
    };
    let value = ask(setting.contender)?;
    Ok(vec![match case.measures_memory() {
        true => RESIDENT_BYTES.reads(value - ask(Name::Nothing)?),
        false => TIME_PER_OP.reads(value),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the spec of every possible measurement, with a short slice.
    fn specs() -> impl Iterator<Item = ChildSpec> {
        let spec = |case: AllocCase, contender| ChildSpec {
            case: case.0.to_owned(),
            contender,
            threads: match case.info().threads {
                Threads::Default(_) => 2,
                Threads::Fixed(threads) => threads,
            },
            length: Duration::from_millis(10),
        };
        let of_case = move |case: AllocCase| {
            let baseline = case.measures_memory().then_some(Name::Nothing);
            let names = case.info().contenders.iter().copied().chain(baseline);
            names.map(move |name| spec(case, name))
        };
        let specs = AllocCase::ALL.into_iter().flat_map(of_case);
        specs.filter(|spec| spec.contender.available().is_ok())
    }

    #[test]
    fn child_specs_parse_back_and_bad_ones_are_refused() {
        for spec in specs() {
            assert_eq!(ChildSpec::parse(&serde_json::to_string(&spec).unwrap()), Ok(spec));
        }
        let text = |case, contender, threads| {
            format!(
                r#"{{"case":"{case}","contender":"{contender}","threads":{threads},
                     "length":{{"secs":0,"nanos":5}}}}"#
            )
        };
        ChildSpec::parse(&text("pair-64", "glibc", 2)).unwrap();
        for (case, contender, threads) in [
            ("pair-65", "glibc", 2),
            ("pair-64", "none", 2),
            ("pair-64", "atomic", 2),
            ("pair-65536", "slub-tid", 2),
            ("resident-64", "slub-tid", 64),
            ("resident-64", "slub-lock", 64),
            ("pair-64", "glibc", 0),
        ] {
            ChildSpec::parse(&text(case, contender, threads)).unwrap_err();
        }
        ChildSpec::parse("pair-64").unwrap_err();
    }

    #[test]
    fn children_measure_every_contender_in_every_case() {
        for spec in specs() {
            let value: f64 = child(&spec).unwrap().parse().unwrap();
            assert!(value > 0.0, "{spec:?}: {value}");
        }
    }
}
