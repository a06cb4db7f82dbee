//! Budgets: what is acquired and released on a lane, and what a lane borrows.

use std::cell::Cell;

use thiscpu::{Budget, Exhausted};

use crate::drive::Case;
use crate::ops;
use crate::subject::{Conflict, Subject, Wrong, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of::<Acquire>("Budget", "try_acquire"),
        Case::of::<UpTo>("Budget", "try_acquire_up_to"),
        Case::of::<Release>("Budget", "release"),
        Case::of::<Borrow>("Budget", "try_acquire with a lane that has too little"),
    ]
}

const CONFLICTS: &[Conflict] = &[
    Conflict::SameLane,
    Conflict::Move,
    Conflict::Leave,
    Conflict::Close,
    Conflict::Take,
    Conflict::Always,
];

const LIMIT: u64 = 20_000;
/// After so many acquires a budget has lanes, and credit in the one of this CPU.
const WARM_UP: u64 = 64;
const AMOUNT: u64 = 3;
const MEDDLED: u64 = 5;
/// More than a lane has borrowed by then.
const MUCH: u64 = 2_000;

/// A budget, and how much of it is held.
struct Booked {
    budget: Budget,
    held: Cell<u64>,
}

impl Booked {
    fn new() -> Booked {
        let booked = Booked { budget: Budget::new(LIMIT), held: Cell::new(0) };
        (0..WARM_UP).for_each(|_| booked.acquire(1).unwrap_or_default());
        booked
    }

    fn acquire(&self, n: u64) -> Result<(), Wrong> {
        self.book(n as i64);
        expect("an acquire", &ops::acquire(&self.budget, n), &Ok(()))
    }

    fn book(&self, n: i64) {
        self.held.set(self.held.get().wrapping_add_signed(n));
    }

    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        let held = self.held.get();
        match conflict {
            // Less than what is held for a moment.
            Conflict::Take => {
                self.budget.set_limit(1);
                expect("what is free meanwhile", &self.budget.available(), &0)?;
                self.budget.set_limit(LIMIT);
            }
            _ => expect("what is free meanwhile", &self.budget.available(), &(LIMIT - held))?,
        }
        expect("what is held meanwhile", &self.budget.acquired(), &held)
    }

    fn check(&self) -> Result<(), Wrong> {
        // First from the lane: what that has been handed and should not have is more than there is.
        let free = LIMIT - self.held.get();
        for n in [AMOUNT, free - AMOUNT] {
            expect("an acquire of what is free", &ops::acquire(&self.budget, n), &Ok(()))?;
        }
        let refused = Err(Exhausted { available: 0 });
        expect("an acquire of more than that", &ops::acquire(&self.budget, 1), &refused)?;
        ops::release(&self.budget, free);
        expect("what is held", &self.budget.acquired(), &self.held.get())?;
        expect("what is free", &self.budget.available(), &(LIMIT - self.held.get()))
    }
}

/// Defines a subject: an op, what it adds to what is held, and what it answers.
macro_rules! subject {
    ($name:ident, $answer:ty, $held:expr, $answers:expr, |$budget:ident| $op:expr) => {
        struct $name(Booked);

        impl Subject for $name {
            type Answer = $answer;

            const CONFLICTS: &'static [Conflict] = CONFLICTS;

            fn drives(section: &str) -> bool {
                section == "add_windowed"
            }

            fn new() -> Self {
                $name(Booked::new())
            }

            fn op(&self) -> $answer {
                let $budget = &self.0.budget;
                $op
            }

            fn book(&self, _: usize, _: bool) -> $answer {
                self.0.book($held);
                $answers
            }

            fn meddle(&self) -> Result<(), Wrong> {
                self.0.acquire(MEDDLED)
            }

            fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
                self.0.turn_gate(conflict)
            }

            fn check(&mut self) -> Result<(), Wrong> {
                self.0.check()
            }
        }
    };
}

type Granted = Result<(), Exhausted>;

subject!(Acquire, Granted, AMOUNT as i64, Ok(()), |budget| ops::acquire(budget, AMOUNT));
subject!(UpTo, u64, AMOUNT as i64, AMOUNT, |budget| ops::acquire_up_to(budget, AMOUNT));
subject!(Release, (), -(AMOUNT as i64), (), |budget| ops::release(budget, AMOUNT));

struct Borrow(Booked);

impl Subject for Borrow {
    type Answer = Granted;

    const CONFLICTS: &'static [Conflict] = CONFLICTS;
    /// The units are the caller's when the pool has given them; the section is about more than these.
    const COMMIT_IS_THE_OP: bool = false;

    fn drives(section: &str) -> bool {
        section == "add_credit"
    }

    /// With a lane that holds nothing.
    fn new() -> Self {
        let booked = Booked::new();
        booked.budget.available();
        Borrow(booked)
    }

    fn op(&self) -> Granted {
        ops::acquire(&self.0.budget, MUCH)
    }

    fn book(&self, _: usize, _: bool) -> Granted {
        self.0.book(MUCH as i64);
        Ok(())
    }

    fn meddle(&self) -> Result<(), Wrong> {
        self.0.acquire(MEDDLED)
    }

    /// The op has taken its units by now, and they are not in the books yet.
    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        self.0.book(MUCH as i64);
        let result = self.0.turn_gate(conflict);
        self.0.book(-(MUCH as i64));
        result
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.0.check()
    }
}
