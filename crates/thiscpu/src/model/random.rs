//! Long random runs, under shuttle: sequentially consistent, with any number of steps.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shuttle::Config;
use shuttle::rand::Rng as _;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Condvar, Mutex};

use super::checker::{Change, Checker};
use super::machine::{Machine, execute};

/// The way in which the next thread is chosen.
#[derive(Clone, Copy, Debug)]
pub enum Schedule {
    /// Any thread, at each step.
    Uniform,
    /// By priorities that change at this many random steps (Burckhardt and others, 2010).
    ///
    /// Finds faults that need few preemptions at the right places.
    Pct(usize),
}

/// Runs `test` on `machine`, `executions` times.
///
/// # Panics
///
/// If `test` panics, with the schedule that led to it.
pub fn random(
    machine: Machine,
    schedule: Schedule,
    executions: usize,
    test: impl Fn() + Send + Sync + 'static,
) {
    run(machine, schedule, SEED, executions, Arc::default(), test);
}

/// The seed: constant, so that a test passes again. More executions add new schedules.
const SEED: u64 = 0x7415_c9b0;

#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    Word { first: u64 },
    Pair,
}

type Locations = Arc<std::sync::Mutex<BTreeMap<usize, Location>>>;

/// Returns the locations that `test` uses in some random runs; ignores their failures.
pub(super) fn locations_used(
    machine: Machine,
    executions: usize,
    test: impl Fn() + Clone + Send + Sync + 'static,
) -> BTreeMap<usize, Location> {
    let used = Locations::default();
    for seed in 0..executions as u64 {
        let (used, test) = (used.clone(), test.clone());
        let quietly = move || {
            let _ = catch_unwind(AssertUnwindSafe(&test));
        };
        // By priorities too, because a call seldom ends while another one has begun otherwise.
        let schedule = if seed % 2 == 0 { Schedule::Uniform } else { Schedule::Pct(1) };
        run(machine, schedule, SEED + seed, 1, used, quietly);
    }
    used.lock().expect("no panic").clone()
}

fn run(
    machine: Machine,
    schedule: Schedule,
    seed: u64,
    executions: usize,
    used: Locations,
    test: impl Fn() + Send + Sync + 'static,
) {
    let scheduler: Box<dyn Scheduler + Send> = match schedule {
        Schedule::Uniform => Box::new(RandomScheduler::new_from_seed(seed, executions)),
        Schedule::Pct(changes) => Box::new(PctScheduler::new_from_seed(seed, changes, executions)),
    };
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
    config.silence_warnings = true;
    let runner = shuttle::Runner::new(scheduler, config);
    runner.run(move || {
        let shuttle = Shuttle { used: used.clone(), ..Shuttle::default() };
        execute(machine, Box::new(shuttle), &test);
    });
}

/// The queue of threads that sleep on a location.
type Sleepers = Arc<(Mutex<()>, Condvar)>;

#[derive(Default)]
struct Shuttle {
    words: RefCell<HashMap<usize, u64>>,
    used: Locations,
    cpus: RefCell<HashMap<usize, Option<u64>>>,
    sleepers: RefCell<HashMap<usize, Sleepers>>,
    /// Each load of it is a point at which shuttle may choose another thread.
    step: AtomicBool,
}

impl Shuttle {
    fn step(&self) {
        self.step.load(Ordering::SeqCst);
    }

    fn word<R>(&self, at: usize, first: u64, access: impl FnOnce(&mut u64) -> R) -> R {
        access(self.words.borrow_mut().entry(at).or_insert_with(|| {
            let mut used = self.used.lock().expect("no panic");
            used.entry(at).or_insert(Location::Word { first });
            first
        }))
    }

    fn pair(&self, at: usize) -> [u64; 2] {
        self.used.lock().expect("no panic").insert(at, Location::Pair);
        [at, at + 8].map(|at| {
            // SAFETY: a pair is 16 readable bytes, and the modelled program never writes them for
            // real.
            *self.words.borrow_mut().entry(at).or_insert_with(|| unsafe { *(at as *const u64) })
        })
    }

    fn sleepers(&self, at: usize) -> Sleepers {
        self.sleepers.borrow_mut().entry(at).or_default().clone()
    }
}

impl Checker for Shuttle {
    fn me(&self) -> usize {
        shuttle::current::me().into()
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()> {
        let thread = shuttle::thread::spawn(work);
        Box::new(|| thread.join().expect("a panic ends the execution"))
    }

    fn yield_now(&self) {
        shuttle::thread::yield_now();
    }

    fn choose(&self, below: usize) -> Option<usize> {
        Some(shuttle::rand::thread_rng().gen_range(0..below))
    }

    fn load(&self, at: usize, first: u64, _: Ordering) -> u64 {
        self.step();
        self.word(at, first, |value| *value)
    }

    fn store(&self, at: usize, first: u64, new: u64, _: Ordering) {
        self.step();
        self.word(at, first, |value| *value = new);
    }

    fn change(&self, at: usize, first: u64, by: Change, _: [Ordering; 2]) -> Result<u64, u64> {
        self.step();
        self.word(at, first, |value| {
            let before = *value;
            *value = by.of(before).ok_or(before)?;
            Ok(before)
        })
    }

    fn load_pair(&self, at: usize, _: Ordering) -> [u64; 2] {
        self.step();
        self.pair(at)
    }

    fn change_pair(
        &self,
        at: usize,
        old: [u64; 2],
        new: [u64; 2],
        _: [Ordering; 2],
    ) -> Result<(), [u64; 2]> {
        self.step();
        let found = self.pair(at);
        if found != old {
            return Err(found);
        }
        self.words.borrow_mut().extend([(at, new[0]), (at + 8, new[1])]);
        Ok(())
    }

    fn fence(&self, _: Ordering) {
        self.step();
    }

    fn with_cpu(&self, cpu: usize, access: &mut dyn FnMut(&mut Option<u64>)) {
        self.step();
        let mut section = self.cpus.borrow().get(&cpu).copied().flatten();
        access(&mut section);
        self.cpus.borrow_mut().insert(cpu, section);
    }

    fn store_at_once(&self, at: usize, first: u64, new: u64) {
        self.word(at, first, |value| *value = new);
    }

    fn wait(&self, at: usize, is_as_expected: &dyn Fn() -> bool) {
        let sleepers = self.sleepers(at);
        let guard = sleepers.0.lock().expect("no panic");
        if is_as_expected() {
            drop(sleepers.1.wait(guard).expect("no panic"));
        }
    }

    fn wake(&self, at: usize, how_many: usize) {
        let sleepers = self.sleepers(at);
        let _guard = sleepers.0.lock().expect("no panic");
        match how_many {
            1 => sleepers.1.notify_one(),
            _ => sleepers.1.notify_all(),
        }
    }
}
