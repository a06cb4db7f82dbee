//! Units that circulate between accounts that stay and accounts that come and go. Their total never
//! changes.

use std::sync::{Mutex, PoisonError};

use thiscpu::{Account, Ledger};

use super::{Actor, Structure};
use crate::violation::{Checked, equal, within};

const COUNTERS: usize = 3;
/// The counter that only transfers change.
const TRANSFERRED: usize = 0;
/// A counter that is charged to one account and then uncharged from another.
const PASSED: usize = 1;
/// A counter without a known total.
const OTHER: usize = 2;
/// The accounts that stay.
const ACCOUNTS: usize = 24;
/// The initial units of each.
const INITIAL_UNITS: i64 = 1_000;
const TOTAL: i64 = ACCOUNTS as i64 * INITIAL_UNITS;
/// The largest transfer. Accounts may become negative.
const AMOUNT_MAX: i64 = 5_000;

pub(in super::super) struct Transfers {
    ledger: Ledger<COUNTERS>,
    accounts: Box<[Account<COUNTERS>]>,
    /// An account that one thread leaves and another one drops.
    left: Mutex<Option<Account<COUNTERS>>>,
    /// The most that can be charged and not yet uncharged.
    in_flight_max: i64,
}

impl Transfers {
    pub(in super::super) fn new(slots: usize) -> Self {
        let ledger = Ledger::new_signed();
        let accounts: Box<[_]> = (0..ACCOUNTS).map(|_| ledger.open()).collect();
        for account in &accounts {
            (0..INITIAL_UNITS).for_each(|_| account.charge(TRANSFERRED, 1));
        }
        Transfers { ledger, accounts, left: Mutex::new(None), in_flight_max: slots as i64 }
    }

    fn any(&self, actor: &mut Actor) -> &Account<COUNTERS> {
        &self.accounts[actor.random.usize(..ACCOUNTS)]
    }

    fn transfer(&self, actor: &mut Actor) {
        let [from, to] = [0; 2].map(|_| self.any(actor));
        from.transfer_to(to, TRANSFERRED, actor.random.i64(-AMOUNT_MAX..AMOUNT_MAX));
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

    /// Opens an account, transfers units to it and back, and lets another thread drop it.
    fn use_guest(&self, actor: &mut Actor) -> Checked {
        let ([from, to], guest) = ([0; 2].map(|_| self.any(actor)), self.ledger.open());
        let (units, times) = (actor.random.i64(1..AMOUNT_MAX), actor.random.i64(0..200));
        equal("the counters of a new account", 0, guest.snapshot().iter().sum())?;
        from.transfer_to(&guest, TRANSFERRED, units);
        (0..times).for_each(|_| guest.charge(OTHER, 3));
        equal("units transferred to an account", units, guest.sum(TRANSFERRED))?;
        equal("the charges of an account", 3 * times, guest.snapshot()[OTHER])?;
        guest.transfer_to(to, TRANSFERRED, units);
        equal("units left in an account", 0, guest.sum(TRANSFERRED))?;
        actor.ops += 4 + times as u64;
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let _dropped_after_unlock = left.replace(guest);
        drop(left);
        Ok(())
    }

    /// Checks a snapshot of all accounts, which allocates.
    fn check_snapshot(&self) -> Checked {
        let (mut accounts, mut total) = (0, [0; COUNTERS]);
        self.ledger.for_each(|_, counters| {
            accounts += 1;
            (0..COUNTERS).for_each(|index| total[index] += counters[index]);
        });
        within("accounts in a snapshot", (ACCOUNTS as i64, i64::MAX), accounts)?;
        equal("units in all accounts", TOTAL, total[TRANSFERRED])?;
        within("units charged and not yet uncharged", (0, self.in_flight_max), total[PASSED])
    }

    fn sums(&self, index: usize) -> i64 {
        self.accounts.iter().map(|account| account.sum(index)).sum()
    }
}

impl Structure for Transfers {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..6 => actor.exactly(self.check_snapshot())?,
            6..16 => self.use_guest(actor)?,
            // Enough that forks and snapshots happen in the middle of some.
            16..36 => (0..1 << actor.random.u8(..8)).for_each(|_| self.transfer(actor)),
            _ => self.pass(actor),
        }
        Ok(())
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        self.check_snapshot()?;
        let units = self.sums(TRANSFERRED);
        (0..50).for_each(|_| self.transfer(actor));
        equal("units in a child after transfers", units, self.sums(TRANSFERRED))?;
        (0..10).for_each(|_| self.pass(actor));
        let guest = self.ledger.open();
        (0..300).for_each(|_| guest.charge(OTHER, 1));
        equal("a child's own account", 300, guest.snapshot().iter().sum())?;
        drop(guest);
        self.check_snapshot()
    }

    fn verify(&mut self) -> Checked {
        *self.left.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.check_snapshot()?;
        equal("units in the end", TOTAL, self.sums(TRANSFERRED))?;
        equal("units passed on in the end", 0, self.sums(PASSED))?;
        equal("accounts in the end", ACCOUNTS as i64, self.ledger.len() as i64)
    }
}
