//! Units that only go round, between accounts that stay and accounts that come and go: whoever looks at all of them
//! finds as many as there were.

use std::sync::{Mutex, PoisonError};

use thiscpu::{Account, Ledger};

use super::{Actor, Structure};
use crate::wrong::{Checked, equal, within};

const COUNTERS: usize = 3;
/// Only moves change it.
const MOVED: usize = 0;
/// It is charged to one account first, and then uncharged from another.
const PASSED: usize = 1;
/// For what nobody adds up.
const OTHER: usize = 2;
/// The accounts that stay, and what each has at first.
const ACCOUNTS: usize = 24;
const FUNDS: i64 = 1_000;
const TOTAL: i64 = ACCOUNTS as i64 * FUNDS;
/// The most that is moved at once. Accounts may owe.
const AMOUNT_MAX: i64 = 5_000;

pub(in super::super) struct Moves {
    ledger: Ledger<COUNTERS>,
    accounts: Box<[Account<COUNTERS>]>,
    /// A handle that one thread leaves and another drops.
    left: Mutex<Option<Account<COUNTERS>>>,
    /// How much can be passed on and not yet be uncharged.
    under_way_max: i64,
}

impl Moves {
    pub(in super::super) fn new(slots: usize) -> Self {
        let ledger = Ledger::new_signed();
        let accounts: Box<[_]> = (0..ACCOUNTS).map(|_| ledger.open()).collect();
        for account in &accounts {
            (0..FUNDS).for_each(|_| account.charge(MOVED, 1));
        }
        Moves { ledger, accounts, left: Mutex::new(None), under_way_max: slots as i64 }
    }

    fn any(&self, actor: &mut Actor) -> &Account<COUNTERS> {
        &self.accounts[actor.random.usize(..ACCOUNTS)]
    }

    fn move_some(&self, actor: &mut Actor) {
        let [from, to] = [0; 2].map(|_| self.any(actor));
        from.transfer_to(to, MOVED, actor.random.i64(-AMOUNT_MAX..AMOUNT_MAX));
        actor.ops += 1;
    }

    fn pass(&self, actor: &mut Actor) {
        let ([from, to], times) = ([0; 2].map(|_| self.any(actor)), 1 << actor.random.u8(..7));
        for _ in 0..times {
            to.charge(PASSED, 1);
            from.uncharge(PASSED, 1);
        }
        actor.ops += 2 * times;
    }

    /// Has an account for a while, whose units nobody else moves.
    fn visit(&self, actor: &mut Actor) -> Checked {
        let ([from, to], guest) = ([0; 2].map(|_| self.any(actor)), self.ledger.open());
        let (units, times) = (actor.random.i64(1..AMOUNT_MAX), actor.random.i64(0..200));
        equal("what a new account has", 0, guest.snapshot().iter().sum())?;
        from.transfer_to(&guest, MOVED, units);
        (0..times).for_each(|_| guest.charge(OTHER, 3));
        equal("what came into an account", units, guest.sum(MOVED))?;
        equal("what was charged to an account", 3 * times, guest.snapshot()[OTHER])?;
        guest.transfer_to(to, MOVED, units);
        equal("what is left of an account", 0, guest.sum(MOVED))?;
        actor.ops += 4 + times as u64;
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let before = left.replace(guest);
        drop(left);
        drop(before);
        Ok(())
    }

    /// Allocates what it reports.
    fn check_report(&self) -> Checked {
        let (mut accounts, mut total) = (0, [0; COUNTERS]);
        self.ledger.for_each(|_, counters| {
            accounts += 1;
            (0..COUNTERS).for_each(|index| total[index] += counters[index]);
        });
        within("accounts in a report", (ACCOUNTS as i64, i64::MAX), accounts)?;
        equal("units in all accounts", TOTAL, total[MOVED])?;
        within("what is passed on in all accounts", (0, self.under_way_max), total[PASSED])
    }

    fn sums(&self, index: usize) -> i64 {
        self.accounts.iter().map(|account| account.sum(index)).sum()
    }
}

impl Structure for Moves {
    fn name(&self) -> &'static str {
        "ledger_moves"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..6 => actor.exactly(self.check_report()),
            6..16 => self.visit(actor),
            16..36 => {
                // So many that forks and reports find some of them under way.
                (0..1 << actor.random.u8(..8)).for_each(|_| self.move_some(actor));
                Ok(())
            }
            _ => {
                self.pass(actor);
                Ok(())
            }
        }
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        self.check_report()?;
        let units = self.sums(MOVED);
        (0..50).for_each(|_| self.move_some(actor));
        equal("units in a child that goes on", units, self.sums(MOVED))?;
        (0..10).for_each(|_| self.pass(actor));
        let guest = self.ledger.open();
        (0..300).for_each(|_| guest.charge(OTHER, 1));
        equal("a child's own account", 300, guest.snapshot().iter().sum())?;
        drop(guest);
        self.check_report()
    }

    fn account(&mut self) -> Checked {
        *self.left.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.check_report()?;
        equal("units in the end", TOTAL, self.sums(MOVED))?;
        equal("what is passed on in the end", 0, self.sums(PASSED))?;
        equal("accounts in the end", ACCOUNTS as i64, self.ledger.len() as i64)
    }
}
