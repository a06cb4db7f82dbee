//! Counters: a single one, one at the edge of its lane's window, and one of a group.

use std::cell::Cell;

use thiscpu::{Counter, Counters};

use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, WITH_GATE, delegate, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of::<Single>("Counter", "add"),
        Case::of::<AtWindowEdge>("Counter", "add at the edge of its window"),
        Case::of::<InGroup>("Counters", "add"),
    ]
}

/// The adds after which a counter has lanes, and a window in that of this CPU.
const WARM_UP: i64 = 64;
const AMOUNT: i64 = 3;
const CONFLICT_AMOUNT: i64 = 5;

/// A counter, and its expected value.
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

struct Single(Tracked);

impl Subject for Single {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] = WITH_GATE;

    fn new() -> Self {
        Single(Tracked::new(Counter::new()))
    }

    fn op(&self) {
        ops::count(&self.0.counter, AMOUNT);
    }

    fn apply(&self, _: usize, _: bool) {
        self.0.apply(AMOUNT);
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        self.0.add(CONFLICT_AMOUNT);
        Ok(())
    }

    delegate!();
}

/// An add that does not fit into its lane's window, so it moves the window.
struct AtWindowEdge(Tracked);

/// The batch; a window has twice as many counts.
const BATCH: u64 = 128;
/// An amount that leaves a window around the old one's upper end, but not the old window.
const BACK: i64 = -250;

impl Subject for AtWindowEdge {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] = WITH_GATE;
    /// The add tries again after the window has moved.
    const COMMIT_IS_OP: bool = false;
    /// The next attempt would correct a window that was moved wrongly.
    const CHECKS_BETWEEN: bool = true;

    fn drives(section: &str) -> bool {
        section == "move_window"
    }

    fn new() -> Self {
        let tracked = Tracked::new(Counter::with_batch(BATCH));
        // Only this lane has a window, so the bounds are those of the window.
        let highest = tracked.counter.bounds().high - 1;
        tracked.add(highest - tracked.total.get());
        AtWindowEdge(tracked)
    }

    fn op(&self) {
        ops::count(&self.0.counter, 1);
    }

    fn apply(&self, _: usize, _: bool) {
        self.0.apply(1);
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        self.0.add(BACK);
        Ok(())
    }

    fn check_between(&self) -> Result<(), Mismatch> {
        self.0.check_bounds()
    }

    delegate!();
}

struct InGroup {
    counters: Counters<3>,
    totals: Cell<[i64; 3]>,
}

impl InGroup {
    const DRIVEN: usize = 1;

    fn add(&self, i: usize, n: i64) {
        ops::count_one_of(&self.counters, i, n);
        self.apply_to(i, n);
    }

    fn apply_to(&self, i: usize, n: i64) {
        let mut totals = self.totals.get();
        totals[i] += n;
        self.totals.set(totals);
    }
}

impl Subject for InGroup {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] =
        &[Conflict::SameLane, Conflict::Move, Conflict::Leave, Conflict::Flip, Conflict::Always];

    fn new() -> Self {
        let subject = InGroup { counters: Counters::new(), totals: Cell::default() };
        (0..3).for_each(|i| (0..WARM_UP).for_each(|_| subject.add(i, 1)));
        subject
    }

    fn op(&self) {
        ops::count_one_of(&self.counters, Self::DRIVEN, AMOUNT);
    }

    fn apply(&self, _: usize, _: bool) {
        self.apply_to(Self::DRIVEN, AMOUNT);
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
