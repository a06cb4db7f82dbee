//! `object`: objects are allocated and freed.
//!
//! | case | an operation |
//! |---|---|
//! | `pair-8` to `pair-16384` | one object of so many bytes allocated and freed |
//! | `burst-64`, `burst-1024` | the same, but a thread allocates 10,000 of them, and then frees them in that order |
//! | `remote-64` | an object allocated on one CPU and freed on another |
//! | `crowd-64` | one allocated, and a random one of 16 that the thread has freed, by many threads a CPU |
//! | `idle-64` | not timed: 64 threads allocate an object of each of 31 sizes, and then do nothing |
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

mod idle;
mod laps;
mod remote;
mod taken;
mod timed;

/// The subcommand, hidden from users, that a child is started with. Its argument is an [`Order`].
pub(crate) const CHILD: &str = "object-child";

/// What is done to objects, and what that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scene {
    name: &'static str,
    what: What,
}

/// What is done to objects of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Pair(usize),
    Burst(usize),
    Remote(usize),
    Crowd(usize),
    Idle,
}

impl Scene {
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
        Self::new("crowd-64", What::Crowd(64)),
        Self::IDLE,
    ];

    const IDLE: Self = Self::new("idle-64", What::Idle);

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
            What::Crowd(_) => {
                "An object of 64 bytes allocated, and a random one of the thread's 16 freed"
            }
            What::Idle => "Resident memory while each thread has 31 objects, 16 bytes to 16 KiB",
        }
    }

    /// Whether it is one of those that a run of all workloads has time for.
    pub(crate) const fn is_in_full_run(self) -> bool {
        match self.what {
            What::Pair(size) | What::Burst(size) => size == 64,
            What::Remote(_) | What::Crowd(_) | What::Idle => true,
        }
    }

    /// Whether it is about memory, not time.
    pub(crate) const fn is_idle(self) -> bool {
        matches!(self.what, What::Idle)
    }

    /// The numbers of threads it runs with when `asked` names none, or in spite of it.
    pub(crate) fn threads(self, asked: &[usize]) -> Vec<usize> {
        let by_default: &[usize] = match self.what {
            What::Pair(_) | What::Burst(_) => &[1, 2],
            What::Crowd(_) => &[64],
            What::Remote(_) => return vec![remote::THREADS],
            What::Idle => return vec![idle::THREADS],
        };
        if asked.is_empty() { by_default } else { asked }.to_vec()
    }

    /// Who takes part.
    pub(crate) const fn contenders(self) -> &'static [Name] {
        match self.what {
            What::Idle => allocators::OF_ANY_SIZE,
            _ => allocators::ALL,
        }
    }
}

/// What a child is to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    scene: Scene,
    /// [`Name::Nothing`] for what there is without any objects.
    contender: Name,
    threads: usize,
    length: Duration,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scene, contender, threads, length } = self;
        write!(f, "{}:{contender}:{threads}:{}", scene.name, length.as_nanos())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [scene, contender, threads, length_ns] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err("want CASE:NAME:THREADS:NANOSECONDS".to_owned());
        };
        let is_named = |known: &Scene| known.name == scene;
        let scene = Scene::ALL.into_iter().find(is_named).ok_or("no case has that name")?;
        let contender = match contender {
            "none" if scene.is_idle() => Name::Nothing,
            name => name.parse()?,
        };
        if contender != Name::Nothing && !scene.contenders().contains(&contender) {
            return Err(format!("{contender} takes no part"));
        }
        contender.available().map_err(|why| format!("{why:#}"))?;
        let threads = crate::plan::parse_threads(threads)?;
        let length_ns = length_ns.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { scene, contender, threads, length: Duration::from_nanos(length_ns) })
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
pub(crate) fn child(order: Order) -> Result<String> {
    let cpus = &Cpus::allowed()?;
    let Order { scene, mut contender, threads, length } = order;
    if contender == Name::ThisCpuHardened {
        allocators::harden()?;
        contender = Name::ThisCpuMalloc;
    }
    let value = match (scene.what, contender) {
        (_, Name::Nothing) => idle::resident_bytes::<allocators::Glibc>(cpus, &[])? as f64,
        (What::Idle, name) => {
            for_allocator!(name, A => idle::resident_bytes::<A>(cpus, &idle::SIZES))? as f64
        }
        (What::Pair(size), name) => {
            for_allocator!(name, A => timed::pair::<A>(cpus, threads, length, size))?
        }
        (What::Burst(size), name) => {
            for_allocator!(name, A => timed::burst::<A>(cpus, threads, length, size))?
        }
        (What::Crowd(size), name) => {
            for_allocator!(name, A => timed::crowd::<A>(cpus, threads, length, size))?
        }
        (What::Remote(size), name) => {
            for_allocator!(name, A => remote::measure::<A>(cpus, length, size))?
        }
    };
    Ok(serde_json::to_string(&Answer { value })?)
}

/// Has a child measure one contender.
pub(crate) fn measure(scene: Scene, contender: Name, setting: &Setting<'_>) -> Measured {
    let order = Order { scene, contender, threads: setting.threads, length: setting.length };
    let value = ask(order)?;
    Ok(vec![if scene.is_idle() {
        let without_objects = ask(Order { contender: Name::Nothing, ..order })?;
        RESIDENT_BYTES.reads(value - without_objects)
    } else {
        TIME_PER_OP.reads(value)
    }])
}

/// A child's value, which has to come within a minute of what its slice takes: threads that are many and have
/// to take turns may need some of it to begin and to end.
fn ask(order: Order) -> Result<f64> {
    let patience = order.length * 2 + Duration::from_secs(60);
    children::ask(CHILD, &order.to_string(), patience).map(|Answer { value }| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a child may be told to measure, briefly.
    fn orders() -> impl Iterator<Item = Order> {
        let length = Duration::from_millis(10);
        let order = move |scene: Scene, contender| {
            let threads = scene.threads(&[2])[0];
            Order { scene, contender, threads, length }
        };
        let of_scene =
            move |scene: Scene| scene.contenders().iter().map(move |&name| order(scene, name));
        let baseline = order(Scene::IDLE, Name::Nothing);
        let orders = Scene::ALL.into_iter().flat_map(of_scene).chain([baseline]);
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
            "idle-64:slub-tid:64:5",
            "pair-64:glibc:0:5",
            "pair-64:glibc:2:soon",
        ] {
            text.parse::<Order>().unwrap_err();
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
