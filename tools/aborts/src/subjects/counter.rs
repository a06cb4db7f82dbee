//! Counters: a single one, one at the edge of its lane's window, and one of a group.

use std::cell::Cell;

use thiscpu::__internal::capi::DynCounters;
use thiscpu::{Counter, Counters};

use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, WITH_GATE, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(["Counter", "add"], WITH_GATE, || {
            let tracked = Tracked::new(Counter::new());
            Add { tracked, amount: AMOUNT, conflict_amount: CONFLICT_AMOUNT }
        }),
        Case::new(["Counter", "add of a negative amount"], WITH_GATE, || {
            let tracked = Tracked::new(Counter::new());
            Add { tracked, amount: -AMOUNT, conflict_amount: CONFLICT_AMOUNT }
        }),
        // An add that does not fit into its lane's window, so it moves the window and tries again.
        // The next attempt would correct a window that was moved wrongly.
        Case {
            section: Some("move_window"),
            commit_is_op: false,
            checks_between: true,
            ..Case::new(["Counter", "add at the edge of its window"], WITH_GATE, || {
                let tracked = Tracked::new(Counter::with_batch(BATCH));
                // Only this lane has a window, so the bounds are those of the window.
                let highest = tracked.counter.bounds().high;
                tracked.add(highest - tracked.total.get());
                Add { tracked, amount: 1, conflict_amount: BACK }
            })
        },
        Case::new(["Counters", "add"], IN_GROUP, || InGroup::new(Counters::<3>::new())),
        Case::new(["DynCounters", "add"], IN_GROUP, || {
            InGroup::new(DynCounters::try_new(3).expect("memory"))
        }),
    ]
}

/// The conflicts of counters in a group.
const IN_GROUP: &[Conflict] = &[
    Conflict::SameLane,
    Conflict::Move,
    Conflict::Leave,
    Conflict::Vfork,
    Conflict::Flip,
    Conflict::Always,
];
/// The adds after which a counter has lanes, and a window in that of this CPU.
const WARM_UP: i64 = 64;
const AMOUNT: i64 = 3;
const CONFLICT_AMOUNT: i64 = 5;
/// The batch; a window has twice as many counts.
const BATCH: u64 = 128;
/// An amount that leaves a window around the old one's upper end, but not the old window.
const BACK: i64 = -250;

struct Tracked {
    counter: Counter,
    total: Cell<i64>,
}

impl Tracked {
    fn new(counter: Counter) -> Tracked {
        let tracked = Tracked { counter, total: Cell::new(0) };
        (0..WARM_UP).for_each(|_| tracked.add(1));
        tracked
    }

    fn add(&self, n: i64) {
        ops::count(&self.counter, n);
        self.apply(n);
    }

    fn apply(&self, n: i64) {
        self.total.set(self.total.get() + n);
    }

    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        let total = self.total.get();
        match conflict {
            Conflict::Flip => expect("the sum meanwhile", &self.counter.sum(), &total),
            Conflict::Close => {
                let found = self.counter.compare(total).exact;
                expect("the comparison meanwhile", &found, &Some(total))
            }
            _ => {
                self.total.set(0);
                expect("the value taken meanwhile", &self.counter.take(), &total)
            }
        }
    }

    fn check_bounds(&self) -> Result<(), Mismatch> {
        let (total, bounds) = (self.total.get(), self.counter.bounds());
        match (bounds.low..=bounds.high).contains(&total) {
            true => Ok(()),
            false => Err(format!("{bounds:?} do not contain the value {total}")),
        }
    }

    fn check(&self) -> Result<(), Mismatch> {
        self.check_bounds()?;
        expect("the sum", &self.counter.sum(), &self.total.get())
    }
}

struct Add {
    tracked: Tracked,
    amount: i64,
    conflict_amount: i64,
}

impl Subject for Add {
    type Answer = ();

    fn op(&self) {
        ops::count(&self.tracked.counter, self.amount);
    }

    fn apply(&self, _: usize, _: bool) {
        self.tracked.apply(self.amount);
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        self.tracked.add(self.conflict_amount);
        Ok(())
    }

    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        self.tracked.use_gate(conflict)
    }

    fn check_between(&self) -> Result<(), Mismatch> {
        self.tracked.check_bounds()
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.tracked.check()
    }
}

/// Three counters.
trait Group {
    fn add(&self, i: usize, n: i64);
    fn snapshot(&self) -> [i64; 3];
}

impl Group for Counters<3> {
    fn add(&self, i: usize, n: i64) {
        ops::count_one_of(self, i, n);
    }

    fn snapshot(&self) -> [i64; 3] {
        Counters::snapshot(self)
    }
}

impl Group for DynCounters {
    fn add(&self, i: usize, n: i64) {
        ops::count_one_of_dyn(self, i, n);
    }

    fn snapshot(&self) -> [i64; 3] {
        let values: Vec<_> = DynCounters::snapshot(self).collect();
        values.try_into().expect("three counters")
    }
}

struct InGroup<G> {
    counters: G,
    totals: Cell<[i64; 3]>,
}

/// The one of three counters that the operation adds to.
const DRIVEN: usize = 1;

impl<G: Group> InGroup<G> {
    fn new(counters: G) -> Self {
        let subject = InGroup { counters, totals: Cell::default() };
        (0..3).for_each(|i| (0..WARM_UP).for_each(|_| subject.add(i, 1)));
        subject
    }

    fn add(&self, i: usize, n: i64) {
        self.counters.add(i, n);
        self.apply_to(i, n);
    }

    fn apply_to(&self, i: usize, n: i64) {
        let mut totals = self.totals.get();
        totals[i] += n;
        self.totals.set(totals);
    }
}

impl<G: Group> Subject for InGroup<G> {
    type Answer = ();

    fn op(&self) {
        self.counters.add(DRIVEN, AMOUNT);
    }

    fn apply(&self, _: usize, _: bool) {
        self.apply_to(DRIVEN, AMOUNT);
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        (0..3).for_each(|i| self.add(i, CONFLICT_AMOUNT));
        Ok(())
    }

    fn use_gate(&self, _: Conflict) -> Result<(), Mismatch> {
        expect("the snapshot meanwhile", &self.counters.snapshot(), &self.totals.get())
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        expect("the snapshot", &self.counters.snapshot(), &self.totals.get())
    }
}
