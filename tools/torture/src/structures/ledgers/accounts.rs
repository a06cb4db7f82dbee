//! Accounts that are charged, some more often than others, and evict each other from lanes.

use thiscpu::{Account, Ledger};

use super::{Actor, Structure};
use crate::oracle::{Amounts, Oracle};
use crate::violation::{Checked, equal, within};

/// With this number of counters a lane caches 256 accounts.
const COUNTERS: usize = 16;
const ACCOUNTS: usize = 400;
/// The accounts that are charged most.
const FREQUENT: usize = 16;
/// The counters that are charged: the first and the last one.
const CHARGED: [usize; 2] = [0, COUNTERS - 1];
/// The largest charge. Some are too large for a lane.
const AMOUNT_MAX: i64 = 1 << 22;

/// An account, and an oracle of each counter that is charged.
struct Tracked {
    account: Account<COUNTERS>,
    oracles: [Oracle; CHARGED.len()],
}

pub(in super::super) struct Accounts {
    ledger: Ledger<COUNTERS>,
    accounts: Box<[Tracked]>,
    /// The oracle of all accounts together.
    total: Oracle,
}

impl Tracked {
    /// Records that `add` adds to one of the charged counters.
    fn add(&self, actor: &Actor, which: usize, amounts: Amounts, add: impl FnOnce()) {
        self.oracles[which].add(actor.slot, amounts, add);
    }

    fn check_sum(&self, which: usize) -> Checked<i64> {
        let ask = || self.account.sum(CHARGED[which]);
        let (range, sum) = self.oracles[which].around(ask);
        within("an account's sum", range, sum).map(|()| sum)
    }

    fn check_snapshot(&self) -> Checked {
        let [first, last] = &self.oracles;
        let (of_first, (of_last, snapshot)) =
            first.around(|| last.around(|| self.account.snapshot()));
        within("an account's first counter", of_first, snapshot[CHARGED[0]])?;
        within("an account's last counter", of_last, snapshot[CHARGED[1]])?;
        equal("a counter that is never charged", 0, snapshot[1])
    }

    /// Charges an account that no other thread uses, and checks its counter.
    fn check_quiescent(&self, which: usize) -> Checked {
        let index = CHARGED[which];
        let sum = self.account.sum(index);
        (0..300).for_each(|_| self.account.charge(index, 9));
        equal("an account's sum after charges", sum + 2_700, self.account.sum(index))?;
        self.account.uncharge(index, 2_700);
        equal("an account's snapshot after charges", sum, self.account.snapshot()[index])
    }
}

impl Accounts {
    pub(in super::super) fn new(slots: usize) -> Self {
        let ledger = Ledger::new_signed();
        let oracle = || Oracle::new(slots);
        let tracked = |_| Tracked { account: ledger.open(), oracles: [oracle(), oracle()] };
        Accounts { accounts: (0..ACCOUNTS).map(tracked).collect(), ledger, total: oracle() }
    }

    fn any(&self, actor: &mut Actor) -> &Tracked {
        let most = if actor.random.u8(..8) == 0 { ACCOUNTS } else { FREQUENT };
        &self.accounts[actor.random.usize(..most)]
    }

    fn amount(actor: &mut Actor) -> i64 {
        match actor.random.u8(..32) {
            0..16 => 1,
            16..28 => -1,
            28..31 => actor.random.i64(-2_000..2_000),
            _ => actor.random.i64(-AMOUNT_MAX..AMOUNT_MAX),
        }
    }

    fn charge(&self, actor: &mut Actor) {
        let (tracked, which, n) =
            (self.any(actor), actor.random.usize(..CHARGED.len()), Self::amount(actor));
        let times = 1 << actor.random.u8(..7);
        let (is_uncached, index) = (actor.random.u8(..16) == 0, CHARGED[which]);
        let amounts = Amounts::of((0..times).map(|_| n));
        let charge = || match is_uncached {
            true => (0..times).for_each(|_| tracked.account.charge_uncached(index, n)),
            false => (0..times).for_each(|_| tracked.account.charge(index, n)),
        };
        self.total.add(actor.slot, amounts, || tracked.add(actor, which, amounts, charge));
        actor.ops += times as u64;
    }

    /// Transfers between two accounts, which changes no total.
    fn transfer(&self, actor: &mut Actor) {
        let [from, to] = [0; 2].map(|_| self.any(actor));
        let (which, n) = (actor.random.usize(..CHARGED.len()), Self::amount(actor));
        let transfer = || from.account.transfer_to(&to.account, CHARGED[which], n);
        let out = || from.add(actor, which, Amounts::of([-n]), transfer);
        to.add(actor, which, Amounts::of([n]), out);
        actor.ops += 1;
    }

    /// Returns the number of accounts, and the sum of their charged counters, in one snapshot.
    fn snapshot(&self) -> (i64, i64) {
        let (mut accounts, mut total) = (0, 0);
        self.ledger.for_each(|_, counters| {
            accounts += 1;
            total += CHARGED.map(|index| counters[index]).iter().sum::<i64>();
        });
        (accounts, total)
    }

    fn check_total(&self) -> Checked {
        let (range, (accounts, total)) = self.total.around(|| self.snapshot());
        equal("accounts in a snapshot", ACCOUNTS as i64, accounts)?;
        within("the total of a snapshot", range, total)
    }
}

impl Structure for Accounts {
    fn step(&self, actor: &mut Actor) -> Checked {
        let tracked = self.any(actor);
        match actor.random.u8(..64) {
            0..4 => {
                let which = actor.random.usize(..CHARGED.len());
                actor.exactly(tracked.check_sum(which))?;
            }
            4..7 => actor.exactly(tracked.check_snapshot())?,
            7 => actor.exactly(self.check_total())?,
            8..12 => self.transfer(actor),
            12 if actor.random.u8(..16) == 0 => {
                self.ledger.sync();
                actor.ops += 1;
            }
            _ => (0..1 << actor.random.u8(..5)).for_each(|_| self.charge(actor)),
        }
        Ok(())
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        for _ in 0..16 {
            let tracked = self.any(actor);
            (0..CHARGED.len()).try_for_each(|which| tracked.check_sum(which).map(drop))?;
            tracked.check_snapshot()?;
        }
        self.check_total()?;
        let (_, total) = self.snapshot();
        for which in [0, 1, 0, 1] {
            self.any(actor).check_quiescent(which)?;
        }
        let [from, to] = [0; 2].map(|_| self.any(actor));
        from.account.transfer_to(&to.account, CHARGED[1], 1 << 30);
        equal("the total in a child after a transfer", total, self.snapshot().1)
    }

    fn verify(&mut self) -> Checked {
        self.check_total()?;
        equal("the last snapshot", self.total.settled(), self.snapshot().1)?;
        for tracked in &self.accounts {
            for (which, oracle) in tracked.oracles.iter().enumerate() {
                equal("an account's last sum", oracle.settled(), tracked.check_sum(which)?)?;
            }
        }
        self.ledger.sync();
        for Tracked { account, oracles } in &self.accounts {
            for (oracle, index) in oracles.iter().zip(CHARGED) {
                equal("an account's value without lanes", oracle.settled(), account.read(index))?;
            }
        }
        Ok(())
    }
}
