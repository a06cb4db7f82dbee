//! Accounts that are charged, some more often than others, and push each other out of lanes.

use thiscpu::{Account, Ledger};

use super::{Actor, Structure};
use crate::books::{Amounts, Books};
use crate::wrong::{Checked, equal, within};

/// So many that a lane has room for 256 accounts.
const COUNTERS: usize = 16;
const ACCOUNTS: usize = 400;
/// Those that are charged most.
const HOT: usize = 16;
/// Those of the counters that are charged: what is furthest apart.
const CHARGED: [usize; 2] = [0, COUNTERS - 1];
/// The most that is charged at once: some of it never gets into a lane.
const AMOUNT_MAX: i64 = 1 << 22;

/// An account, and the books on the counters that are charged.
struct Booked {
    account: Account<COUNTERS>,
    books: [Books; CHARGED.len()],
}

pub(in super::super) struct Accounts {
    ledger: Ledger<COUNTERS>,
    accounts: Box<[Booked]>,
    /// On all accounts together.
    total: Books,
}

impl Booked {
    /// Has `add` add to one of the counters.
    fn add(&self, actor: &Actor, which: usize, amounts: Amounts, add: impl FnOnce()) {
        self.books[which].add(actor.slot, amounts, add);
    }

    fn check_sum(&self, which: usize) -> Checked<i64> {
        let ask = || self.account.sum(CHARGED[which]);
        let (range, sum) = self.books[which].around(ask);
        within("an account's sum", range, sum).map(|()| sum)
    }

    fn check_snapshot(&self) -> Checked {
        let [first, last] = &self.books;
        let (of_first, (of_last, snapshot)) =
            first.around(|| last.around(|| self.account.snapshot()));
        within("an account's first counter", of_first, snapshot[CHARGED[0]])?;
        within("an account's last counter", of_last, snapshot[CHARGED[1]])?;
        equal("what nobody charges", 0, snapshot[1])
    }

    /// When nobody else charges it: it goes on from what it is.
    fn check_alone(&self, which: usize) -> Checked {
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
        let books = || Books::new(slots);
        let booked = |_| Booked { account: ledger.open(), books: [books(), books()] };
        Accounts { accounts: (0..ACCOUNTS).map(booked).collect(), ledger, total: books() }
    }

    fn any(&self, actor: &mut Actor) -> &Booked {
        let most = if actor.random.u8(..8) == 0 { ACCOUNTS } else { HOT };
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
        let (booked, which, n) =
            (self.any(actor), actor.random.usize(..CHARGED.len()), Self::amount(actor));
        let times = 1 << actor.random.u8(..7);
        let (is_aside, index) = (actor.random.u8(..16) == 0, CHARGED[which]);
        let amounts = Amounts::of((0..times).map(|_| n));
        let charge = || match is_aside {
            true => (0..times).for_each(|_| booked.account.charge_uncached(index, n)),
            false => (0..times).for_each(|_| booked.account.charge(index, n)),
        };
        self.total.add(actor.slot, amounts, || booked.add(actor, which, amounts, charge));
        actor.ops += times as u64;
    }

    /// In all it changes nothing.
    fn move_some(&self, actor: &mut Actor) {
        let [from, to] = [0; 2].map(|_| self.any(actor));
        let (which, n) = (actor.random.usize(..CHARGED.len()), Self::amount(actor));
        let move_it = || from.account.transfer_to(&to.account, CHARGED[which], n);
        let out = || from.add(actor, which, Amounts::of([-n]), move_it);
        to.add(actor, which, Amounts::of([n]), out);
        actor.ops += 1;
    }

    /// All charged counters of all accounts.
    fn report(&self) -> (i64, i64) {
        let (mut accounts, mut total) = (0, 0);
        self.ledger.for_each(|_, counters| {
            accounts += 1;
            total += CHARGED.map(|index| counters[index]).iter().sum::<i64>();
        });
        (accounts, total)
    }

    fn check_report(&self) -> Checked {
        let (range, (accounts, total)) = self.total.around(|| self.report());
        equal("accounts in a report", ACCOUNTS as i64, accounts)?;
        within("the total of a report", range, total)
    }
}

impl Structure for Accounts {
    fn name(&self) -> &'static str {
        "ledger_accounts"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        let booked = self.any(actor);
        match actor.random.u8(..64) {
            0..4 => {
                let which = actor.random.usize(..CHARGED.len());
                actor.exactly(booked.check_sum(which)).map(drop)
            }
            4..7 => actor.exactly(booked.check_snapshot()),
            7 => actor.exactly(self.check_report()),
            8..12 => {
                self.move_some(actor);
                Ok(())
            }
            12 if actor.random.u8(..16) == 0 => {
                self.ledger.sync();
                actor.ops += 1;
                Ok(())
            }
            _ => {
                (0..1 << actor.random.u8(..5)).for_each(|_| self.charge(actor));
                Ok(())
            }
        }
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        for _ in 0..16 {
            let booked = self.any(actor);
            (0..CHARGED.len()).try_for_each(|which| booked.check_sum(which).map(drop))?;
            booked.check_snapshot()?;
        }
        self.check_report()?;
        let (_, total) = self.report();
        for which in [0, 1, 0, 1] {
            self.any(actor).check_alone(which)?;
        }
        let [from, to] = [0; 2].map(|_| self.any(actor));
        from.account.transfer_to(&to.account, CHARGED[1], 1 << 30);
        equal("the total in a child that goes on", total, self.report().1)
    }

    fn account(&mut self) -> Checked {
        self.check_report()?;
        equal("the last report", self.total.settled(), self.report().1)?;
        for booked in &self.accounts {
            for (which, books) in booked.books.iter().enumerate() {
                equal("an account's last sum", books.settled(), booked.check_sum(which)?)?;
            }
        }
        self.ledger.sync();
        for Booked { account, books } in &self.accounts {
            for (books, index) in books.iter().zip(CHARGED) {
                equal("what an account has without lanes", books.settled(), account.read(index))?;
            }
        }
        Ok(())
    }
}
