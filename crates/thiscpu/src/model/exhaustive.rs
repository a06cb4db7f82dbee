//! Small exhaustive runs, under loom: every interleaving up to a number of preemptions.
//!
//! Two explorations are needed. To decide which steps to reorder, loom 0.7 remembers only the last
//! access of each location, and assumes that loads commute. A thread that loads a word and then
//! changes it hides the loads of other threads. Then loom skips orders in which such a load is
//! followed by the change. An adder that trusts a gate it loaded two flips ago goes unnoticed in
//! this way.
//!
//! So one exploration makes each access a read-modify-write. Loom reorders these like any other
//! access, and each sees the newest value. The other exploration leaves accesses as they are: loads
//! return any value that the memory model allows, in fewer orders.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic as atomic_of_std;

use loom::sync::atomic::{self, AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, ThreadId};

use super::checker::{Change, Checker};
use super::machine::{Machine, execute};
use super::random::{self, Location};

/// The number of random runs that determine which locations a test uses.
const LOCATION_RUNS: usize = 100;

/// Runs `test` on `machine` in every order of steps with at most `preemptions` preemptions.
///
/// Returns the number of executions. The objects under test must be statics: loom needs each
/// location to exist before a second thread starts, so random runs determine the locations first.
///
/// # Panics
///
/// If `test` panics.
pub fn exhaustive(
    machine: Machine,
    preemptions: usize,
    test: impl Fn() + Clone + Send + Sync + 'static,
) -> usize {
    let used = random::locations_used(machine, LOCATION_RUNS, test.clone());
    let explore = |loads| explore(machine, preemptions, loads, used.clone(), test.clone());
    explore(Loads::Newest) + explore(Loads::Any)
}

fn explore(
    machine: Machine,
    preemptions: usize,
    loads: Loads,
    used: BTreeMap<usize, Location>,
    test: impl Fn() + Send + Sync + 'static,
) -> usize {
    let executions = Arc::new(atomic_of_std::AtomicUsize::new(0));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 100_000;
    let machine = Machine { preempt_one_in: 0, ..machine };
    builder.check(move || {
        count.fetch_add(1, atomic_of_std::Ordering::Relaxed);
        execute(machine, Box::new(Loom::with(loads, &used)), &test);
    });
    executions.load(atomic_of_std::Ordering::Relaxed)
}

#[derive(Clone, Copy, Debug)]
enum Loads {
    /// The newest value; every order of steps is tried.
    Newest,
    /// Any value that the memory model allows; most orders of steps are tried.
    Any,
}

/// The queue of threads that sleep on a location.
type Sleepers = Rc<(Mutex<()>, Condvar)>;

struct Loom {
    loads: Loads,
    threads: RefCell<Vec<ThreadId>>,
    /// The locations. A pair is one location, each of its words in half of a word.
    words: RefCell<HashMap<usize, Rc<AtomicU64>>>,
    cpus: RefCell<HashMap<usize, Rc<Mutex<Option<u64>>>>>,
    sleepers: RefCell<HashMap<usize, Sleepers>>,
}

impl Loom {
    fn with(loads: Loads, used: &BTreeMap<usize, Location>) -> Loom {
        let loom = Loom {
            loads,
            threads: RefCell::default(),
            words: RefCell::default(),
            cpus: RefCell::default(),
            sleepers: RefCell::default(),
        };
        for (&at, &location) in used {
            match location {
                Location::Word { first } => drop(loom.word(at, first)),
                Location::Pair => drop(loom.pair(at)),
            }
        }
        loom
    }

    fn word(&self, at: usize, first: u64) -> Rc<AtomicU64> {
        let mut words = self.words.borrow_mut();
        words.entry(at).or_insert_with(|| Rc::new(AtomicU64::new(first))).clone()
    }

    fn pair(&self, at: usize) -> Rc<AtomicU64> {
        // SAFETY: a pair is 16 readable bytes, and the modelled program never writes them for real.
        self.word(at, pack(unsafe { *(at as *const [u64; 2]) }))
    }

    fn load_word(&self, word: &AtomicU64, order: Ordering) -> u64 {
        match self.loads {
            Loads::Newest => word.fetch_or(0, order),
            Loads::Any => word.load(order),
        }
    }

    fn store_word(&self, word: &AtomicU64, value: u64, order: Ordering) {
        match self.loads {
            Loads::Newest => drop(word.swap(value, order)),
            Loads::Any => word.store(value, order),
        }
    }

    fn cpu(&self, cpu: usize) -> Rc<Mutex<Option<u64>>> {
        self.cpus.borrow_mut().entry(cpu).or_default().clone()
    }

    fn sleepers(&self, at: usize) -> Sleepers {
        self.sleepers.borrow_mut().entry(at).or_default().clone()
    }
}

/// Packs two words into one: 32 bits of each, with their signs.
fn pack([first, second]: [u64; 2]) -> u64 {
    let packed = first & 0xffff_ffff | second << 32;
    assert_eq!(unpack(packed), [first, second], "a value too large for this model");
    packed
}

fn unpack(packed: u64) -> [u64; 2] {
    [packed as i32, (packed >> 32) as i32].map(|word| i64::from(word) as u64)
}

/// Orders a sequentially consistent access by a fence.
///
/// loom's sequentially consistent accesses only acquire and release. With fences around them they
/// have one order, as on every real processor.
fn in_order(order: Ordering) {
    if order == Ordering::SeqCst {
        atomic::fence(Ordering::SeqCst);
    }
}

impl Checker for Loom {
    fn me(&self) -> usize {
        let id = thread::current().id();
        let mut threads = self.threads.borrow_mut();
        threads.iter().position(|&known| known == id).unwrap_or_else(|| {
            threads.push(id);
            threads.len() - 1
        })
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()> {
        let thread = thread::spawn(work);
        Box::new(|| thread.join().expect("a panic ends the execution"))
    }

    fn yield_now(&self) {
        thread::yield_now();
    }

    fn choose(&self, _: usize) -> Option<usize> {
        None
    }

    fn load(&self, at: usize, first: u64, order: Ordering) -> u64 {
        in_order(order);
        self.load_word(&self.word(at, first), order)
    }

    fn store(&self, at: usize, first: u64, value: u64, order: Ordering) {
        self.store_word(&self.word(at, first), value, order);
        in_order(order);
    }

    fn change(&self, at: usize, first: u64, by: Change, order: [Ordering; 2]) -> Result<u64, u64> {
        let word = self.word(at, first);
        let [success, failure] = order;
        match by {
            Change::Swap(new) => Ok(word.swap(new, success)),
            Change::Add(n) => Ok(word.fetch_add(n, success)),
            Change::And(mask) => Ok(word.fetch_and(mask, success)),
            Change::Or(mask) => Ok(word.fetch_or(mask, success)),
            Change::Exchange { old, new } => word.compare_exchange(old, new, success, failure),
        }
    }

    fn load_pair(&self, at: usize, order: Ordering) -> [u64; 2] {
        unpack(self.load_word(&self.pair(at), order))
    }

    fn change_pair(
        &self,
        at: usize,
        old: [u64; 2],
        new: [u64; 2],
        [success, failure]: [Ordering; 2],
    ) -> Result<(), [u64; 2]> {
        let result = self.pair(at).compare_exchange(pack(old), pack(new), success, failure);
        result.map(drop).map_err(unpack)
    }

    fn fence(&self, order: Ordering) {
        atomic::fence(order);
    }

    fn with_cpu(&self, cpu: usize, access: &mut dyn FnMut(&mut Option<u64>)) {
        let cpu = self.cpu(cpu);
        access(&mut cpu.lock().expect("no panic"));
    }

    fn store_at_once(&self, at: usize, first: u64, value: u64) {
        self.store_word(&self.word(at, first), value, Ordering::Relaxed);
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
