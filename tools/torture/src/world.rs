//! What all threads of a run share.

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use crate::cpus;
use crate::plan::Plan;
use crate::structures::{self, Actor, Structure};
use crate::wrong::{Checked, Failure, Failures, Finder, Wrong};

/// How many short-lived threads there are at a time.
pub(crate) const SHORT_LIVED: usize = 4;
/// What a slot's `doing` says when it is no structure's number.
const NOTHING: usize = usize::MAX;

/// Everything that is tortured, and everybody who does it.
pub(crate) struct World {
    pub(crate) structures: Vec<Box<dyn Structure>>,
    /// The workers, then the short-lived threads, then the one that forks.
    pub(crate) slots: Vec<Slot>,
    pub(crate) failures: Failures,
    pub(crate) events: Events,
    /// Where threads were allowed to run at the beginning.
    pub(crate) cpus: Vec<usize>,
    seed: u64,
    over: AtomicBool,
}

/// Where one thread at a time works. Statistics are relaxed: nothing follows from them.
#[repr(align(64))]
pub(crate) struct Slot {
    /// The thread, 0 if there is none. SeqCst, though a signal to a thread that has ended is
    /// harmless.
    pub(crate) tid: AtomicI32,
    doing: AtomicUsize,
    /// Where the random numbers of the next handler begin.
    handlers: AtomicU64,
    /// For each structure.
    pub(crate) ops: Box<[AtomicU64]>,
    pub(crate) exact: AtomicU64,
    pub(crate) signals: AtomicU64,
    pub(crate) migrations: AtomicU64,
    pub(crate) lingers: AtomicU64,
    pub(crate) aborts: AtomicU64,
}

/// What happened to the run as a whole.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) forks: AtomicU64,
    pub(crate) short_lived: AtomicU64,
    pub(crate) moves: AtomicU64,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> World {
        let slots = plan.threads + SHORT_LIVED + 1;
        let structures = structures::all(slots);
        let slot = |number| Slot::new(structures.len(), stream(plan.seed, number, 1));
        World {
            slots: (0..slots as u64).map(slot).collect(),
            structures,
            failures: Failures::default(),
            events: Events::default(),
            cpus: cpus::allowed(),
            seed: plan.seed,
            over: AtomicBool::new(false),
        }
    }

    /// Where the random numbers of a thread begin: the `generation`th in that slot.
    pub(crate) fn seed(&self, slot: usize, generation: u64) -> u64 {
        stream(self.seed, slot as u64, 2 + generation)
    }

    /// Whether everybody is to come to an end.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Writes down what is wrong, and ends the run: what comes after would tell nothing new.
    pub(crate) fn fail(&self, structure: &'static str, finder: Finder, wrong: Wrong) {
        self.failures.add(Failure { structure, finder, wrong });
        self.end();
    }

    /// One turn on one structure, by the thread in `slot`.
    pub(crate) fn turn(&self, actor: &mut Actor) {
        let index = actor.random.usize(..self.structures.len());
        let here = &self.slots[actor.slot];
        here.doing.store(index, Relaxed);
        let result = self.structures[index].turn(actor);
        here.doing.store(NOTHING, Relaxed);
        self.note(index, actor, Finder::Worker(actor.slot), result);
    }

    /// What a signal handler does on the thread in `slot`. Async-signal-safe.
    pub(crate) fn interrupt(&self, slot: usize) {
        let here = &self.slots[slot];
        here.signals.fetch_add(1, Relaxed);
        let mut actor = Actor::new(slot, here.handlers.fetch_add(1, Relaxed));
        let index = actor.random.usize(..self.structures.len());
        let result = self.structures[index].interrupt(&mut actor);
        self.note(index, &mut actor, Finder::Handler(slot), result);
    }

    fn note(&self, index: usize, actor: &mut Actor, finder: Finder, result: Checked) {
        let here = &self.slots[actor.slot];
        here.ops[index].fetch_add(std::mem::take(&mut actor.ops), Relaxed);
        here.exact.fetch_add(std::mem::take(&mut actor.exact), Relaxed);
        if let Err(wrong) = result {
            self.fail(self.structures[index].name(), finder, wrong);
        }
    }

    /// What a forked child does: all structures, beginning with any. What was wrong, and where.
    pub(crate) fn child(&self, actor: &mut Actor) -> Result<(), (&'static str, Wrong)> {
        let count = self.structures.len();
        let first = actor.random.usize(..count);
        (first..first + count).map(|index| &self.structures[index % count]).try_for_each(
            |structure| structure.child(actor).map_err(|wrong| (structure.name(), wrong)),
        )
    }

    /// Accounts for everything, when everybody has ended.
    pub(crate) fn account(&mut self) {
        for structure in &mut self.structures {
            if let Err(wrong) = structure.account() {
                let (structure, finder) = (structure.name(), Finder::Account);
                self.failures.add(Failure { structure, finder, wrong });
            }
        }
    }

    /// A number that changes as long as anybody gets anywhere.
    pub(crate) fn progress(&self) -> u64 {
        self.slots.iter().map(Slot::total).sum()
    }

    /// What the thread in `slot` is in the middle of, if there is one.
    pub(crate) fn doing(&self, slot: usize) -> Option<&'static str> {
        let slot = &self.slots[slot];
        let doing = || self.structures.get(slot.doing.load(Relaxed));
        (slot.tid.load(SeqCst) != 0).then(|| doing().map_or("no_structure", |one| one.name()))
    }
}

impl Slot {
    fn new(structures: usize, handlers: u64) -> Slot {
        Slot {
            tid: AtomicI32::new(0),
            doing: AtomicUsize::new(NOTHING),
            handlers: AtomicU64::new(handlers),
            ops: (0..structures).map(|_| AtomicU64::new(0)).collect(),
            exact: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            migrations: AtomicU64::new(0),
            lingers: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
        }
    }

    fn total(&self) -> u64 {
        self.ops.iter().map(|ops| ops.load(Relaxed)).sum()
    }
}

/// One seed of many that follow from one.
fn stream(seed: u64, slot: u64, generation: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    random.u64(..) ^ slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ generation.rotate_right(16)
}
