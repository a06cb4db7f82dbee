//! An account with the oracle on what was charged to it, and what differs from them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst, fence};

use thiscpu::{Account, Ledger};

pub(super) const COUNTERS: usize = 2;

/// Units that the oracle have and an account has not, and the other way round.
#[derive(Default)]
pub(super) struct Errors {
    lost: AtomicU64,
    doubled: AtomicU64,
}

impl Errors {
    /// That what was `found` is at least `low` and at most `high`.
    pub(super) fn judge(&self, (low, high): (i64, i64), found: i64) {
        // SeqCst: nothing is gained by less, for what should never happen.
        if found < low {
            self.lost.fetch_add(low.abs_diff(found), SeqCst);
        } else if found > high {
            self.doubled.fetch_add(high.abs_diff(found), SeqCst);
        }
    }

    pub(super) fn judge_exactly(&self, expected: i64, found: i64) {
        self.judge((expected, expected), found);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(SeqCst)
    }

    pub(super) fn doubled(&self) -> u64 {
        self.doubled.load(SeqCst)
    }

    pub(super) fn are_any(&self) -> bool {
        self.lost() + self.doubled() > 0
    }
}

/// Increases and decreases apart: of each it is known how much is in flight. SeqCst, so that they are in one order for
/// everybody.
#[derive(Default)]
struct Column {
    plus: AtomicI64,
    minus: AtomicI64,
}

impl Column {
    fn add(&self, n: i64) {
        match n < 0 {
            true => self.minus.fetch_sub(n, SeqCst),
            false => self.plus.fetch_add(n, SeqCst),
        };
    }

    fn get(&self) -> (i64, i64) {
        (self.plus.load(SeqCst), self.minus.load(SeqCst))
    }
}

/// The oracle on one counter: what is to be charged is written down as begun, charged, and written down as done.
#[derive(Default)]
struct Oracle {
    begun: Column,
    done: Column,
}

/// An account and its oracle. Whoever charges it keeps them.
pub(super) struct Tenant {
    pub(super) account: Account<COUNTERS>,
    oracle: [Oracle; COUNTERS],
}

impl Tenant {
    /// A new one, who has nothing of whoever had the same place before.
    pub(super) fn open(ledger: &Ledger<COUNTERS>, errors: &Errors) -> Self {
        let account = ledger.open();
        account.snapshot().into_iter().for_each(|found| errors.judge_exactly(0, found));
        Self { account, oracle: Default::default() }
    }

    /// Writes down what is going to be charged.
    pub(super) fn begin(&self, index: usize, n: i64) {
        self.oracle[index].begun.add(n);
        // The charges are relaxed, and come after this for whoever reads the oracle.
        fence(SeqCst);
    }

    /// Writes down what was charged.
    pub(super) fn end(&self, index: usize, n: i64) {
        // As in `begin`, the other way round.
        fence(SeqCst);
        self.oracle[index].done.add(n);
    }

    /// Charges so much so often.
    pub(super) fn charge(&self, index: usize, n: i64, times: u32) {
        let all = n * i64::from(times);
        self.begin(index, all);
        match n < 0 {
            true => (0..times).for_each(|_| self.account.uncharge(index, -n)),
            false => (0..times).for_each(|_| self.account.charge(index, n)),
        }
        self.end(index, all);
    }

    /// Moves so much to another one.
    pub(super) fn transfer_to(&self, other: &Self, index: usize, n: i64) {
        self.begin(index, -n);
        other.begin(index, n);
        self.account.transfer_to(&other.account, index, n);
        self.end(index, -n);
        other.end(index, n);
    }

    /// That what `ask` answers for some counters is what the oracle allow.
    fn judge<const N: usize>(
        &self,
        errors: &Errors,
        indexes: [usize; N],
        ask: impl FnOnce() -> [i64; N],
    ) {
        let done = indexes.map(|index| self.oracle[index].done.get());
        fence(SeqCst);
        let found = ask();
        fence(SeqCst);
        for (which, index) in indexes.into_iter().enumerate() {
            let ((plus, minus), (plus_max, minus_max)) =
                (done[which], self.oracle[index].begun.get());
            errors.judge((plus - minus_max, plus_max - minus), found[which]);
        }
    }

    /// Looks while others go on.
    pub(super) fn check(&self, errors: &Errors) {
        self.judge(errors, [0], || [self.account.sum(0)]);
        self.judge(errors, [1], || [self.account.sum(1)]);
        self.judge(errors, [0, 1], || self.account.snapshot());
    }

    /// Accounts when nobody charges it any more, and leaves the account to somebody.
    pub(super) fn close(self, errors: &Errors) -> Account<COUNTERS> {
        let snapshot = self.account.snapshot();
        for (index, found) in snapshot.into_iter().enumerate() {
            let (plus, minus) = self.oracle[index].done.get();
            errors.judge_exactly(plus - minus, found);
            errors.judge_exactly(plus - minus, self.account.sum(index));
        }
        self.account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_the_books_is_counted() {
        let (ledger, errors) = (Ledger::new_signed(), Errors::default());
        let [one, other] = [0; 2].map(|_| Tenant::open(&ledger, &errors));
        one.charge(0, -3, 700);
        one.transfer_to(&other, 1, 40);
        one.begin(0, 9);
        one.account.charge(0, 5);
        one.check(&errors);
        assert!(!errors.are_any(), "5 of 9 may have been charged by now");
        one.end(0, 9);
        one.check(&errors);
        assert_eq!((errors.lost(), errors.doubled()), (2 * 4, 0));
        other.account.charge(1, 1);
        other.close(&errors);
        assert_eq!((errors.lost(), errors.doubled()), (2 * 4, 2));
    }
}
