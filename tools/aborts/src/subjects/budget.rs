//! Budgets: acquires and releases on a lane, and a loan to a lane.

use std::cell::Cell;

use thiscpu::{Budget, Exhausted};

use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, WITHOUT_FLIP, delegate, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of::<Acquire>("Budget", "try_acquire"),
        Case::of::<UpTo>("Budget", "try_acquire_up_to"),
        Case::of::<Release>("Budget", "release"),
        Case::of::<Borrow>("Budget", "try_acquire on a lane with too little credit"),
    ]
}

const LIMIT: u64 = 20_000;
/// The acquires after which a budget has lanes, and credit in that of this CPU.
const WARM_UP: u64 = 64;
const AMOUNT: u64 = 3;
const CONFLICT_AMOUNT: u64 = 5;
/// More than a lane has borrowed by then.
const LOAN: u64 = 2_000;

/// A budget, and the number of units that are held.
struct Tracked {
    budget: Budget,
    held: Cell<u64>,
}

impl Tracked {
    fn new() -> Tracked {
        let tracked = Tracked { budget: Budget::new(LIMIT), held: Cell::new(0) };
        (0..WARM_UP).for_each(|_| tracked.acquire(1).unwrap_or_default());
        tracked
    }

    fn acquire(&self, n: u64) -> Result<(), Mismatch> {
        self.apply(n as i64);
        expect("an acquire", &ops::acquire(&self.budget, n), &Ok(()))
    }

    fn apply(&self, n: i64) {
        self.held.set(self.held.get().wrapping_add_signed(n));
    }

    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        let held = self.held.get();
        match conflict {
            // A limit below the held units, for a moment.
            Conflict::Take => {
                self.budget.set_limit(1);
                expect("available units meanwhile", &self.budget.available(), &0)?;
                self.budget.set_limit(LIMIT);
            }
            _ => expect("available units meanwhile", &self.budget.available(), &(LIMIT - held))?,
        }
        expect("held units meanwhile", &self.budget.acquired(), &held)
    }

    fn check(&self) -> Result<(), Mismatch> {
        // First from the lane: credit that it should not have would be granted beyond the limit.
        let free = LIMIT - self.held.get();
        for n in [AMOUNT, free - AMOUNT] {
            expect("an acquire of available units", &ops::acquire(&self.budget, n), &Ok(()))?;
        }
        let refused = Err(Exhausted { available: 0 });
        expect("an acquire of one more", &ops::acquire(&self.budget, 1), &refused)?;
        ops::release(&self.budget, free);
        expect("held units", &self.budget.acquired(), &self.held.get())?;
        expect("available units", &self.budget.available(), &(LIMIT - self.held.get()))
    }
}

/// Defines a subject: an operation, the units that it adds to those held, and its answer.
macro_rules! subject {
    ($name:ident, $answer:ty, $held:expr, $answers:expr, |$budget:ident| $op:expr) => {
        struct $name(Tracked);

        impl Subject for $name {
            type Answer = $answer;

            const CONFLICTS: &'static [Conflict] = WITHOUT_FLIP;

            fn drives(section: &str) -> bool {
                section == "add_windowed"
            }

            fn new() -> Self {
                $name(Tracked::new())
            }

            fn op(&self) -> $answer {
                let $budget = &self.0.budget;
                $op
            }

            fn apply(&self, _: usize, _: bool) -> $answer {
                self.0.apply($held);
                $answers
            }

            fn conflict_here(&self) -> Result<(), Mismatch> {
                self.0.acquire(CONFLICT_AMOUNT)
            }

            delegate!();
        }
    };
}

type Granted = Result<(), Exhausted>;

subject!(Acquire, Granted, AMOUNT as i64, Ok(()), |budget| ops::acquire(budget, AMOUNT));
subject!(UpTo, u64, AMOUNT as i64, AMOUNT, |budget| ops::acquire_up_to(budget, AMOUNT));
subject!(Release, (), -(AMOUNT as i64), (), |budget| ops::release(budget, AMOUNT));

struct Borrow(Tracked);

impl Subject for Borrow {
    type Answer = Granted;

    const CONFLICTS: &'static [Conflict] = WITHOUT_FLIP;
    /// The pool has granted the units before the section, which lends further ones to the lane.
    const COMMIT_IS_OP: bool = false;

    fn drives(section: &str) -> bool {
        section == "add_credit"
    }

    /// Creates a budget whose lanes have no credit.
    fn new() -> Self {
        let tracked = Tracked::new();
        tracked.budget.available();
        Borrow(tracked)
    }

    fn op(&self) -> Granted {
        ops::acquire(&self.0.budget, LOAN)
    }

    fn apply(&self, _: usize, _: bool) -> Granted {
        self.0.apply(LOAN as i64);
        Ok(())
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        self.0.acquire(CONFLICT_AMOUNT)
    }

    /// Counts the units of the operation, which it has taken before its section.
    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        self.0.apply(LOAN as i64);
        let result = self.0.use_gate(conflict);
        self.0.apply(-(LOAN as i64));
        result
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.0.check()
    }
}
