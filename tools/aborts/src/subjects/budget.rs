//! Budgets: acquires and releases on a lane, and a loan to a lane.

use std::cell::Cell;
use std::fmt::Debug;

use thiscpu::{Budget, TryAcquireError};

use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, WITHOUT_FLIP, expect};

pub(super) fn cases() -> Vec<Case> {
    const HELD: i64 = AMOUNT as i64;
    let loan = || {
        let tracked = Tracked::new();
        // Then its lanes have no credit.
        tracked.budget.available();
        let (op, held) = (|budget: &_| ops::acquire(budget, LOAN), LOAN as i64);
        Call { tracked, op, held, held_before: held, answer: Ok(()) }
    };
    let loan = Case::new(["Budget", "try_acquire with too little credit"], WITHOUT_FLIP, loan);
    vec![
        case("try_acquire", |budget| ops::acquire(budget, AMOUNT), HELD, Ok(())),
        case("try_acquire_up_to", |budget| ops::acquire_up_to(budget, AMOUNT), HELD, AMOUNT),
        case("release", |budget| ops::release(budget, AMOUNT), -HELD, ()),
        // The pool grants the units before the section, which lends further ones to the lane.
        Case { section: Some("add_credit"), commit_is_op: false, ..loan },
    ]
}

fn case<A: PartialEq + Debug + Copy + Sync + 'static>(
    name: &'static str,
    op: fn(&Budget) -> A,
    held: i64,
    answer: A,
) -> Case {
    let call = move || Call { tracked: Tracked::new(), op, held, held_before: 0, answer };
    Case::new(["Budget", name], WITHOUT_FLIP, call)
}

const LIMIT: u64 = 20_000;
/// The acquires after which a budget has lanes, and credit in that of this CPU.
const WARM_UP: u64 = 64;
const AMOUNT: u64 = 3;
const CONFLICT_AMOUNT: u64 = 5;
/// More than a lane has borrowed by then.
const LOAN: u64 = 2_000;

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
        let refused = Err(TryAcquireError::Exhausted { available: 0 });
        expect("an acquire of one more", &ops::acquire(&self.budget, 1), &refused)?;
        ops::release(&self.budget, free);
        expect("held units", &self.budget.acquired(), &self.held.get())?;
        expect("available units", &self.budget.available(), &(LIMIT - self.held.get()))
    }
}

struct Call<A> {
    tracked: Tracked,
    op: fn(&Budget) -> A,
    /// The units that the operation adds to those held.
    held: i64,
    /// The units that it has taken before its section.
    held_before: i64,
    answer: A,
}

impl<A: PartialEq + Debug + Copy> Subject for Call<A> {
    type Answer = A;

    fn op(&self) -> A {
        (self.op)(&self.tracked.budget)
    }

    fn apply(&self, _: usize, _: bool) -> A {
        self.tracked.apply(self.held);
        self.answer
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        self.tracked.acquire(CONFLICT_AMOUNT)
    }

    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        self.tracked.apply(self.held_before);
        let result = self.tracked.use_gate(conflict);
        self.tracked.apply(-self.held_before);
        result
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.tracked.check()
    }
}
