//! Ledgers: a charge in a lane, and a charge that flushes its lane's way.

use std::cell::Cell;

use thiscpu::{__test_support, Account, Ledger};

use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, WITHOUT_FLIP, WITHOUT_GATE, expect};

pub(super) fn cases() -> Vec<Case> {
    let cached = Case::new(["Account", "charge"], WITHOUT_FLIP, || Cached(Tracked::new().warm()));
    let full = Case::new(["Account", "charge of a full way"], WITHOUT_GATE, Full::new);
    vec![
        Case { section: Some("charge"), ..cached },
        // The units are in the account before the section.
        Case { section: Some("u64::cmpxchg"), commit_is_op: false, ..full },
    ]
}

/// The charges after which an account is in this CPU's lane.
const WARM_UP: usize = 64;
const AMOUNT: i64 = 3;
const CONFLICT_AMOUNT: i64 = 5;
/// The most that a way holds.
const FULL: i64 = 1023;

struct Tracked {
    ledger: Ledger<2>,
    account: Account<2>,
    total: Cell<i64>,
    /// The accounts before it in its set.
    _before: Vec<Account<2>>,
}

/// The number of ways in a set.
const WAYS: usize = 4;

impl Tracked {
    /// Opens an account in the last way of its set, so sections search all ways.
    fn new() -> Tracked {
        let ledger = Ledger::new_signed();
        let account = ledger.open();
        // Enough that some share its set.
        let others: Vec<_> = (0..4096).map(|_| ledger.open()).collect();
        let before: Vec<_> = others
            .into_iter()
            .filter(|other| __test_support::are_neighbours(&account, other))
            .take(WAYS - 1)
            .inspect(|other| ops::charge(other, 1))
            .collect();
        assert_eq!(before.len(), WAYS - 1, "too few accounts share a set");
        Tracked { ledger, account, total: Cell::new(0), _before: before }
    }

    fn warm(self) -> Tracked {
        (0..WARM_UP).for_each(|_| self.charge(1));
        self
    }

    fn charge(&self, n: i64) {
        ops::charge(&self.account, n);
        self.apply(n);
    }

    fn apply(&self, n: i64) {
        self.total.set(self.total.get() + n);
    }

    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        let total = self.total.get();
        match conflict {
            Conflict::Take => {
                self.ledger.sync();
                expect("the value without lanes", &self.account.read(1), &total)
            }
            _ => expect("the snapshot meanwhile", &self.account.snapshot(), &[0, total]),
        }
    }

    fn check(&self) -> Result<(), Mismatch> {
        expect("the sum", &self.account.sum(1), &self.total.get())?;
        expect("the snapshot", &self.account.snapshot(), &[0, self.total.get()])
    }
}

/// A charge of an account that is cached in this lane.
struct Cached(Tracked);

impl Subject for Cached {
    type Answer = ();

    fn op(&self) {
        ops::charge(&self.0.account, AMOUNT);
    }

    fn apply(&self, _: usize, _: bool) {
        self.0.apply(AMOUNT);
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        self.0.charge(CONFLICT_AMOUNT);
        Ok(())
    }

    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        self.0.use_gate(conflict)
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.0.check()
    }
}

/// A charge that does not fit into its way, so it flushes the way.
struct Full {
    tracked: Tracked,
    /// Another account: the operation holds the lock of its own one during the conflict.
    neighbor: Account<2>,
    conflicted: Cell<i64>,
}

impl Full {
    fn new() -> Self {
        let tracked = Tracked::new().warm();
        // The first charge came before the account was in the lane, so the way has one less than
        // the total.
        tracked.charge(FULL - tracked.total.get());
        let neighbor = tracked.ledger.open();
        Full { tracked, neighbor, conflicted: Cell::new(0) }
    }
}

impl Subject for Full {
    type Answer = ();

    fn op(&self) {
        ops::charge(&self.tracked.account, AMOUNT);
    }

    fn apply(&self, _: usize, _: bool) {
        self.tracked.apply(AMOUNT);
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        ops::charge(&self.neighbor, CONFLICT_AMOUNT);
        self.conflicted.set(self.conflicted.get() + CONFLICT_AMOUNT);
        Ok(())
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        expect("the neighbor's sum", &self.neighbor.sum(1), &self.conflicted.get())?;
        self.tracked.check()
    }
}
