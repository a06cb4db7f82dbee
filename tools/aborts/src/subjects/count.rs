//! Counters: one alone, one at the edge of its lane's window, and one of several.

use std::cell::Cell;

use thiscpu::{Counter, Counters};

use crate::drive::Case;
use crate::ops;
use crate::subject::{Conflict, Subject, WITH_GATE, Wrong, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of::<Alone>("Counter", "add"),
        Case::of::<AtTheEdge>("Counter", "add at the edge of its window"),
        Case::of::<OneOfSeveral>("Counters", "add"),
    ]
}

/// After so many adds a counter has lanes, and a window in the one it is added to.
const WARM_UP: i64 = 64;
const AMOUNT: i64 = 3;
const MEDDLED: i64 = 5;

/// A counter, and what it must come to.
struct Booked {
    counter: Counter,
    total: Cell<i64>,
}

impl Booked {
    fn new(counter: Counter) -> Booked {
        let booked = Booked { counter, total: Cell::new(0) };
        (0..WARM_UP).for_each(|_| booked.add(1));
        booked
    }

    fn add(&self, n: i64) {
        ops::count(&self.counter, n);
        self.book(n);
    }

    fn book(&self, n: i64) {
        self.total.set(self.total.get() + n);
    }

    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        let total = self.total.get();
        match conflict {
            Conflict::Flip => expect("the sum meanwhile", &self.counter.sum(), &total),
            Conflict::Close => {
                let found = self.counter.compare(total).exact;
                expect("the comparison meanwhile", &found, &Some(total))
            }
            _ => {
                self.total.set(0);
                expect("what was taken meanwhile", &self.counter.take(), &total)
            }
        }
    }

    fn look(&self) -> Result<(), Wrong> {
        let (total, bounds) = (self.total.get(), self.counter.bounds());
        match (bounds.low..=bounds.high).contains(&total) {
            true => Ok(()),
            false => Err(format!("{bounds:?} do not hold the value, {total}")),
        }
    }

    fn check(&self) -> Result<(), Wrong> {
        self.look()?;
        expect("the sum", &self.counter.sum(), &self.total.get())
    }
}

struct Alone(Booked);

impl Subject for Alone {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] = WITH_GATE;

    fn new() -> Self {
        Alone(Booked::new(Counter::new()))
    }

    fn op(&self) {
        ops::count(&self.0.counter, AMOUNT);
    }

    fn book(&self, _: usize, _: bool) {
        self.0.book(AMOUNT);
    }

    fn meddle(&self) -> Result<(), Wrong> {
        self.0.add(MEDDLED);
        Ok(())
    }

    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        self.0.turn_gate(conflict)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.0.check()
    }
}

/// An add that does not fit into its lane's window, which therefore is moved.
struct AtTheEdge(Booked);

/// A window of twice as many counts.
const BATCH: u64 = 128;
/// What leads out of a window around the old one's upper end, and stays in the old one.
const BACK: i64 = -250;

impl Subject for AtTheEdge {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] = WITH_GATE;
    /// Once the window is moved, the add tries again.
    const COMMIT_IS_THE_OP: bool = false;
    /// The add that follows would put a window right that must not have been moved.
    const LOOKS_BETWEEN: bool = true;

    fn drives(section: &str) -> bool {
        section == "move_window"
    }

    fn new() -> Self {
        let booked = Booked::new(Counter::with_batch(BATCH));
        // The lane is the only one that has a window, so the bounds are this window's.
        let highest = booked.counter.bounds().high - 1;
        booked.add(highest - booked.total.get());
        AtTheEdge(booked)
    }

    fn op(&self) {
        ops::count(&self.0.counter, 1);
    }

    fn book(&self, _: usize, _: bool) {
        self.0.book(1);
    }

    fn meddle(&self) -> Result<(), Wrong> {
        self.0.add(BACK);
        Ok(())
    }

    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        self.0.turn_gate(conflict)
    }

    fn look(&self) -> Result<(), Wrong> {
        self.0.look()
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.0.check()
    }
}

struct OneOfSeveral {
    counters: Counters<3>,
    totals: Cell<[i64; 3]>,
}

impl OneOfSeveral {
    const DRIVEN: usize = 1;

    fn add(&self, i: usize, n: i64) {
        ops::count_one_of(&self.counters, i, n);
        self.enter(i, n);
    }

    fn enter(&self, i: usize, n: i64) {
        let mut totals = self.totals.get();
        totals[i] += n;
        self.totals.set(totals);
    }
}

impl Subject for OneOfSeveral {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] =
        &[Conflict::SameLane, Conflict::Move, Conflict::Leave, Conflict::Flip, Conflict::Always];

    fn new() -> Self {
        let subject = OneOfSeveral { counters: Counters::new(), totals: Cell::default() };
        (0..3).for_each(|i| (0..WARM_UP).for_each(|_| subject.add(i, 1)));
        subject
    }

    fn op(&self) {
        ops::count_one_of(&self.counters, Self::DRIVEN, AMOUNT);
    }

    fn book(&self, _: usize, _: bool) {
        self.enter(Self::DRIVEN, AMOUNT);
    }

    fn meddle(&self) -> Result<(), Wrong> {
        (0..3).for_each(|i| self.add(i, MEDDLED));
        Ok(())
    }

    fn turn_gate(&self, _: Conflict) -> Result<(), Wrong> {
        expect("the snapshot meanwhile", &self.counters.snapshot(), &self.totals.get())
    }

    fn check(&mut self) -> Result<(), Wrong> {
        expect("the snapshot", &self.counters.snapshot(), &self.totals.get())
    }
}
