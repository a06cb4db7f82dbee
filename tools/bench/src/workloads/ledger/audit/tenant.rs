//! An account with an oracle of its charges, and the differences found between the two.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst, fence};

use thiscpu::{Account, Ledger};

pub(super) const COUNTERS: usize = 2;

/// The units that accounts lack by their oracles, and those that accounts have in excess.
#[derive(Default)]
pub(super) struct Errors {
    lost: AtomicU64,
    doubled: AtomicU64,
}

impl Errors {
    /// Checks that `found` is at least `low` and at most `high`, and records the difference.
    pub(super) fn judge(&self, (low, high): (i64, i64), found: i64) {
        // SeqCst: errors should never happen, so a weaker ordering gains nothing.
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

/// The sums of increases and of decreases, kept apart because both can be in flight.
///
/// SeqCst: all threads see changes of both in one order.
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

/// The oracle of one counter.
///
/// A charge is first added to `begun`, then made, then added to `done`.
#[derive(Default)]
struct Oracle {
    begun: Column,
    done: Column,
}

/// An account and its oracle. Every charge also updates the oracle.
pub(super) struct Tenant {
    pub(super) account: Account<COUNTERS>,
    oracle: [Oracle; COUNTERS],
}

impl Tenant {
    /// Opens an account, and checks that nothing of an earlier account is in it.
    pub(super) fn open(ledger: &Ledger<COUNTERS>, errors: &Errors) -> Self {
        let account = ledger.open();
        account.snapshot().into_iter().for_each(|found| errors.judge_exactly(0, found));
        Self { account, oracle: Default::default() }
    }

    /// Records a charge that is about to be made.
    pub(super) fn begin(&self, index: usize, n: i64) {
        self.oracle[index].begun.add(n);
        // Charges are relaxed. SeqCst: pairs with the second fence in `judge`; a thread that sees
        // the charge sees `begun` too.
        fence(SeqCst);
    }

    /// Records a charge that has been made.
    pub(super) fn end(&self, index: usize, n: i64) {
        // SeqCst: pairs with the first fence in `judge`; a thread that sees `done` sees the charge.
        fence(SeqCst);
        self.oracle[index].done.add(n);
    }

    /// Charges `n` to a counter, `times` times.
    pub(super) fn charge(&self, index: usize, n: i64, times: u32) {
        let all = n * i64::from(times);
        self.begin(index, all);
        match n < 0 {
            true => (0..times).for_each(|_| self.account.uncharge(index, -n)),
            false => (0..times).for_each(|_| self.account.charge(index, n)),
        }
        self.end(index, all);
    }

    /// Transfers `n` to another tenant.
    pub(super) fn transfer_to(&self, other: &Self, index: usize, n: i64) {
        self.begin(index, -n);
        other.begin(index, n);
        self.account.transfer_to(&other.account, index, n);
        self.end(index, -n);
        other.end(index, n);
    }

    /// Checks that the values `ask` returns for some counters are ones that the oracle allows.
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

    /// Checks the account while other threads charge it.
    pub(super) fn check(&self, errors: &Errors) {
        self.judge(errors, [0], || [self.account.sum(0)]);
        self.judge(errors, [1], || [self.account.sum(1)]);
        self.judge(errors, [0, 1], || self.account.snapshot());
    }

    /// Checks the account exactly, after its last charge, and returns it.
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
    fn tenant_records_differences_from_its_oracle() {
        let (ledger, errors) = (Ledger::new_signed(), Errors::default());
        let [one, other] = [0; 2].map(|_| Tenant::open(&ledger, &errors));
        one.charge(0, -3, 700);
        one.transfer_to(&other, 1, 40);
        one.begin(0, 9);
        one.account.charge(0, 5);
        one.check(&errors);
        assert!(!errors.are_any(), "any part of the 9 units may have been charged");
        one.end(0, 9);
        one.check(&errors);
        assert_eq!((errors.lost(), errors.doubled()), (2 * 4, 0));
        other.account.charge(1, 1);
        other.close(&errors);
        assert_eq!((errors.lost(), errors.doubled()), (2 * 4, 2));
    }
}
