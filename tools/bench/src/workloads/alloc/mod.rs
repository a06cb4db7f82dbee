//! `alloc`: objects are allocated and freed.
//!
//! | case | an operation |
//! |---|---|
//! | `pair-8` to `pair-4194304` | one object of that many bytes allocated and freed |
//! | `burst-64`, `burst-1024` | one of 10,000 objects, allocated and then freed in that order |
//! | `remote-64` to `remote-4194304` | an object allocated on one CPU and freed on another |
//! | `churn-64` | an object allocated and a random one of the thread's 16 freed, by many threads |
//! | `random-262144` | like `churn-64`, with objects of a random size from 32 KiB to 256 KiB |
//! | `mixed-small` | one of 8 to 400 bytes allocated and another freed, mostly a young one |
//! | `simulated` | a random one of 1,024 freed, and one of 4 bytes to 32 KiB allocated |
//! | `large-random` | a random one of 5 to 25 MiB allocated or freed; memory is measured too |
//! | `resident-64` | not timed: 64 threads have an object of each of 31 sizes and do nothing |
//!
//! The first eight bytes of each object are written; in the last three timed cases, a byte of each
//! page. Each slice is a child process in which one
//! contender allocates and the others do not, so that none distorts another's memory. The program's
//! own memory comes from the C library in all of them.

mod laps;
mod places;
mod remote;
mod resident;
mod script;
mod timed;
pub(super) mod touch;

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Info, Measured, Setting, Threads, Workload, child_spec::ChildSpec};
use crate::{
    children,
    contenders::{Name, allocators},
    cpus::Cpus,
    metric::{PEAK_BYTES, RESIDENT_BYTES, TIME_PER_OP},
    rss,
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
    MixedSmall,
    Simulated,
    LargeRandom,
    Resident,
}

impl AllocCase {
    pub(crate) const ALL: [Self; 28] = [
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
        Self("mixed-small", Pattern::MixedSmall),
        Self("simulated", Pattern::Simulated),
        Self("large-random", Pattern::LargeRandom),
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
            Pattern::MixedSmall => (
                Threads::Default(&[1]),
                "One object of 8 to 400 bytes freed and one allocated; nine of ten die young",
            ),
            Pattern::Simulated => (
                Threads::Default(&[2, 16]),
                "A random one of the thread's 1,024 freed, one of 4 bytes to 32 KiB allocated",
            ),
            Pattern::LargeRandom => (
                Threads::Default(&[1, 2]),
                "A random object of 5 to 25 MiB allocated or freed, while two are kept",
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
            | Pattern::MixedSmall
            | Pattern::Simulated
            | Pattern::LargeRandom
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
            Pattern::PairLarge(_)
            | Pattern::RemoteLarge(_)
            | Pattern::Random(..)
            | Pattern::MixedSmall
            | Pattern::Simulated
            | Pattern::LargeRandom => false,
            Pattern::Remote(_) | Pattern::Churn(_) | Pattern::Resident => true,
        }
    }

    /// Returns whether the case measures memory instead of time.
    pub(crate) const fn measures_memory(self) -> bool {
        matches!(self.1, Pattern::Resident)
    }

    /// Returns whether the case measures the peak of memory beside the time.
    const fn measures_peak(self) -> bool {
        matches!(self.1, Pattern::LargeRandom)
    }
}

/// Reads the argument of a child.
pub(crate) fn parse_child(text: &str) -> Result<ChildSpec, String> {
    ChildSpec::parse(text, |spec| {
        let case = known_case(spec)?;
        let is_baseline = spec.contender == Name::Nothing && case.measures_memory();
        Some(is_baseline || case.info().contenders.contains(&spec.contender))
    })
}

fn known_case(spec: &ChildSpec) -> Option<AllocCase> {
    AllocCase::ALL.into_iter().find(|known| known.0 == spec.case)
}

/// The answer of a child.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// Nanoseconds per operation, or bytes.
    value: f64,
    /// The peak of resident memory since the child began to measure.
    peak_bytes: u64,
}

/// Makes a child's measurement and returns its answer as JSON.
pub(crate) fn child(spec: &ChildSpec) -> Result<String> {
    let cpus = &Cpus::allowed()?;
    let pattern = known_case(spec).expect("`parse_child` has looked it up").1;
    if spec.contender == Name::ThisCpuHardened {
        allocators::harden()?;
    }
    let before_bytes = rss::peak_bytes()?;
    let value = match spec.contender {
        Name::Nothing => resident::resident_bytes::<allocators::Glibc>(cpus, &[]),
        name => allocators::dispatch!(name, A => match pattern {
            Pattern::Pair(size) | Pattern::PairLarge(size) => timed::pair::<A>(cpus, spec, size),
            Pattern::Burst(size) => timed::burst::<A>(cpus, spec, size),
            Pattern::Churn(size) => timed::churn::<A>(cpus, spec, size),
            Pattern::Random(min, max) => timed::random::<A>(cpus, spec, min..=max),
            Pattern::Remote(size) => remote::measure::<A, 64>(cpus, spec.length, size),
            Pattern::RemoteLarge(size) => remote::measure::<A, 8>(cpus, spec.length, size),
            Pattern::MixedSmall => script::mixed_small::<A>(cpus, spec),
            Pattern::Simulated => script::simulated::<A>(cpus, spec),
            Pattern::LargeRandom => script::large_random::<A>(cpus, spec),
            Pattern::Resident => resident::resident_bytes::<A>(cpus, &resident::SIZES),
        }),
    }?;
    let peak_bytes = rss::peak_bytes()?.saturating_sub(before_bytes);
    Ok(serde_json::to_string(&Answer { value, peak_bytes })?)
}

/// Measures one contender in a child.
pub(crate) fn measure(case: AllocCase, setting: &Setting<'_>) -> Measured {
    let (threads, length) = (setting.threads, setting.length);
    let ask = |contender| {
        let case = case.0.to_owned();
        let spec = ChildSpec { case, contender, threads, length };
        // Many threads that share CPUs may need some of the extra minute to begin and to end.
        children::ask::<Answer>(CHILD, &spec, length * 2 + Duration::from_secs(60))
    };
    let Answer { value, peak_bytes } = ask(setting.contender)?;
    let mut readings = vec![match case.measures_memory() {
        true => RESIDENT_BYTES.reads(value - ask(Name::Nothing)?.value),
        false => TIME_PER_OP.reads(value),
    }];
    if case.measures_peak() {
        readings.push(PEAK_BYTES.reads(peak_bytes as f64));
    }
    Ok(readings)
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
            assert_eq!(parse_child(&serde_json::to_string(&spec).unwrap()), Ok(spec));
        }
        let text = |case, contender, threads| {
            format!(
                r#"{{"case":"{case}","contender":"{contender}","threads":{threads},
                     "length":{{"secs":0,"nanos":5}}}}"#
            )
        };
        parse_child(&text("pair-64", "glibc", 2)).unwrap();
        for (case, contender, threads) in [
            ("pair-65", "glibc", 2),
            ("pair-64", "none", 2),
            ("pair-64", "atomic", 2),
            ("pair-65536", "slub-tid", 2),
            ("resident-64", "slub-tid", 64),
            ("resident-64", "slub-lock", 64),
            ("pair-64", "glibc", 0),
        ] {
            parse_child(&text(case, contender, threads)).unwrap_err();
        }
        parse_child("pair-64").unwrap_err();
    }

    #[test]
    fn children_measure_every_contender_in_every_case() {
        for spec in specs() {
            let answer: Answer = serde_json::from_str(&child(&spec).unwrap()).unwrap();
            assert!(answer.value > 0.0, "{spec:?}: {answer:?}");
        }
    }
}
