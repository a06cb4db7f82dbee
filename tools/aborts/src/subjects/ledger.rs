//! Ledgers: a charge in a lane, and an account that leaves a lane and comes back.

use std::cell::Cell;

use thiscpu::{__test_support, Account, Ledger};

use crate::drive::Case;
use crate::ops;
use crate::subject::{Conflict, Subject, WITHOUT_GATE, Wrong, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of::<Cached>("Account", "charge"),
        Case::of::<Full>("Account", "charge of a lane that is full"),
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

/// After so many charges an account is in the lane of this CPU.
const WARM_UP: usize = 64;
const AMOUNT: i64 = 3;
const MEDDLED: i64 = 5;
/// What a lane keeps at most.
const FULL: i64 = 1023;

/// An account, and what it must come to.
struct Booked {
    ledger: Ledger<2>,
    account: Account<2>,
    total: Cell<i64>,
    /// Accounts in front of it in its set.
    _before: Vec<Account<2>>,
}

/// An account can be in one of so many places of its set.
const WAYS: usize = 4;

impl Booked {
    /// An account that comes last where it is looked for, so that sections do all that they ever do.
    fn new() -> Booked {
        let ledger = Ledger::new_signed();
        let account = ledger.open();
        // So many that some share its set.
        let others: Vec<_> = (0..4096).map(|_| ledger.open()).collect();
        let before: Vec<_> = others
            .into_iter()
            .filter(|other| __test_support::are_neighbours(&account, other))
            .take(WAYS - 1)
            .inspect(|other| ops::charge(other, 1))
            .collect();
        assert_eq!(before.len(), WAYS - 1, "too few accounts share a set");
        Booked { ledger, account, total: Cell::new(0), _before: before }
    }

    fn warm(self) -> Booked {
        (0..WARM_UP).for_each(|_| self.charge(1));
        self
    }

    fn charge(&self, n: i64) {
        ops::charge(&self.account, n);
        self.book(n);
    }

    fn book(&self, n: i64) {
        self.total.set(self.total.get() + n);
    }

    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        let total = self.total.get();
        match conflict {
            Conflict::Take => {
                self.ledger.sync();
                expect("what is left in no lane", &self.account.read(1), &total)
            }
            _ => expect("the snapshot meanwhile", &self.account.snapshot(), &[0, total]),
        }
    }

    fn check(&self) -> Result<(), Wrong> {
        expect("the sum", &self.account.sum(1), &self.total.get())?;
        expect("the snapshot", &self.account.snapshot(), &[0, self.total.get()])
    }
}

/// A charge of an account that is in this lane.
struct Cached(Booked);

impl Subject for Cached {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] = CONFLICTS;

    fn drives(section: &str) -> bool {
        section == "charge"
    }

    fn new() -> Self {
        Cached(Booked::new().warm())
    }

    fn op(&self) {
        ops::charge(&self.0.account, AMOUNT);
    }

    fn book(&self, _: usize, _: bool) {
        self.0.book(AMOUNT);
    }

    fn meddle(&self) -> Result<(), Wrong> {
        self.0.charge(MEDDLED);
        Ok(())
    }

    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        self.0.turn_gate(conflict)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.0.check()
    }
}

/// A charge that does not fit into its lane's way, which therefore is emptied.
struct Full {
    booked: Booked,
    /// The op holds its account's lock meanwhile.
    neighbour: Account<2>,
    meddled: Cell<i64>,
}

impl Subject for Full {
    type Answer = ();

    const CONFLICTS: &'static [Conflict] = WITHOUT_GATE;
    /// The units are in the account by then.
    const COMMIT_IS_THE_OP: bool = false;

    fn drives(section: &str) -> bool {
        section == "u64::cmpxchg"
    }

    fn new() -> Self {
        let booked = Booked::new().warm();
        // The first of them came before the account was in the lane.
        booked.charge(FULL - booked.total.get());
        let neighbour = booked.ledger.open();
        Full { booked, neighbour, meddled: Cell::new(0) }
    }

    fn op(&self) {
        ops::charge(&self.booked.account, AMOUNT);
    }

    fn book(&self, _: usize, _: bool) {
        self.booked.book(AMOUNT);
    }

    fn meddle(&self) -> Result<(), Wrong> {
        ops::charge(&self.neighbour, MEDDLED);
        self.meddled.set(self.meddled.get() + MEDDLED);
        Ok(())
    }

    fn check(&mut self) -> Result<(), Wrong> {
        expect("the neighbour's sum", &self.neighbour.sum(1), &self.meddled.get())?;
        self.booked.check()
    }
}
