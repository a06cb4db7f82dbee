//! What all threads of a run share.

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use thiscpu_test_support::cpus;

use crate::plan::Plan;
use crate::structures::{self, Actor, Structure};
use crate::violation::{Checked, Failure, Failures, Finder, Violation};

/// The number of short-lived threads at a time.
pub(crate) const SHORT_LIVED: usize = 4;
/// The value of a slot's `doing` while its thread uses no structure.
const NOTHING: usize = usize::MAX;

/// The structures under test, and the slots of the threads that use them.
pub(crate) struct Shared {
    pub(crate) structures: Vec<(&'static str, Box<dyn Structure>)>,
    /// The workers' slots, then those of short-lived threads, then that of the forking thread.
    pub(crate) slots: Vec<Slot>,
    pub(crate) failures: Failures,
    pub(crate) events: Events,
    /// The CPUs on which the process was allowed to run at its start.
    pub(crate) cpus: Vec<usize>,
    seed: u64,
    over: AtomicBool,
}

/// The place of one thread at a time. Statistics are relaxed: nothing is decided by them.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    /// The thread, or 0.
    ///
    /// SeqCst at each access, for simplicity: a signal to a thread that has ended is harmless.
    pub(crate) tid: AtomicI32,
    doing: AtomicUsize,
    /// The seed of the next handler.
    handlers: AtomicU64,
    /// Operations on each structure.
    pub(crate) ops: Box<[AtomicU64]>,
    pub(crate) exact: AtomicU64,
    pub(crate) signals: AtomicU64,
    pub(crate) migrations: AtomicU64,
    pub(crate) spins: AtomicU64,
    pub(crate) aborts: AtomicU64,
}

/// Counts of disturbances.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) forks: AtomicU64,
    pub(crate) short_lived: AtomicU64,
    pub(crate) moves: AtomicU64,
}

impl Shared {
    pub(crate) fn new(plan: &Plan) -> Shared {
        let slots = plan.threads + SHORT_LIVED + 1;
        let structures = structures::all(slots);
        let slot = |number| Slot::new(structures.len(), derive_seed(plan.seed, number, 1));
        Shared {
            slots: (0..slots as u64).map(slot).collect(),
            structures,
            failures: Failures::default(),
            events: Events::default(),
            cpus: cpus::allowed(),
            seed: plan.seed,
            over: AtomicBool::new(false),
        }
    }

    /// Returns the seed of a thread: the `generation`th in that slot.
    pub(crate) fn seed(&self, slot: usize, generation: u64) -> u64 {
        derive_seed(self.seed, slot as u64, 2 + generation)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Records a violation and ends the run: later violations would tell nothing new.
    pub(crate) fn fail(&self, structure: &'static str, finder: Finder, violation: Violation) {
        self.failures.add(Failure { structure, finder, violation });
        self.end();
    }

    /// Takes one step on a random structure, on the thread in the actor's slot.
    pub(crate) fn step(&self, actor: &mut Actor) {
        let index = actor.random.usize(..self.structures.len());
        let own = &self.slots[actor.slot];
        own.doing.store(index, Relaxed);
        let result = self.structures[index].1.step(actor);
        own.doing.store(NOTHING, Relaxed);
        self.record(index, actor, Finder::Worker(actor.slot), result);
    }

    /// Takes one step on a random structure, in a signal handler on the thread in `slot`.
    ///
    /// Async-signal-safe.
    pub(crate) fn step_in_handler(&self, slot: usize) {
        let own = &self.slots[slot];
        own.signals.fetch_add(1, Relaxed);
        let mut actor = Actor::new(slot, own.handlers.fetch_add(1, Relaxed));
        let index = actor.random.usize(..self.structures.len());
        let result = self.structures[index].1.step_in_handler(&mut actor);
        self.record(index, &mut actor, Finder::Handler(slot), result);
    }

    fn record(&self, index: usize, actor: &mut Actor, finder: Finder, result: Checked) {
        let own = &self.slots[actor.slot];
        own.ops[index].fetch_add(std::mem::take(&mut actor.ops), Relaxed);
        own.exact.fetch_add(std::mem::take(&mut actor.exact), Relaxed);
        if let Err(violation) = result {
            self.fail(self.structures[index].0, finder, violation);
        }
    }

    /// Checks all structures in a forked child, in an order that begins at random.
    pub(crate) fn check_in_child(
        &self,
        actor: &mut Actor,
    ) -> Result<(), (&'static str, Violation)> {
        let count = self.structures.len();
        let first = actor.random.usize(..count);
        (first..first + count).try_for_each(|index| {
            let (name, structure) = &self.structures[index % count];
            structure.check_in_child(actor).map_err(|violation| (*name, violation))
        })
    }

    /// Verifies all structures after all threads have ended.
    pub(crate) fn verify(&mut self) {
        for (name, structure) in &mut self.structures {
            if let Err(violation) = structure.verify() {
                let finder = Finder::FinalCheck;
                self.failures.add(Failure { structure: name, finder, violation });
            }
        }
    }

    /// Returns a number that changes as long as any thread makes progress.
    pub(crate) fn progress(&self) -> u64 {
        self.slots.iter().map(Slot::total).sum()
    }

    /// Returns the structure that the thread in `slot` is using, if there is such a thread.
    pub(crate) fn doing(&self, slot: usize) -> Option<&'static str> {
        let slot = &self.slots[slot];
        let doing = || self.structures.get(slot.doing.load(Relaxed));
        (slot.tid.load(SeqCst) != 0).then(|| doing().map_or("no_structure", |one| one.0))
    }
}

impl Slot {
    fn new(structures: usize, handlers: u64) -> Slot {
        Slot {
            doing: AtomicUsize::new(NOTHING),
            handlers: AtomicU64::new(handlers),
            ops: (0..structures).map(|_| AtomicU64::new(0)).collect(),
            ..Slot::default()
        }
    }

    fn total(&self) -> u64 {
        self.ops.iter().map(|ops| ops.load(Relaxed)).sum()
    }
}

/// Derives the seed of one stream of random numbers from the run's seed.
fn derive_seed(seed: u64, slot: u64, generation: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    random.u64(..) ^ slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ generation.rotate_right(16)
}
