//! An account with an oracle of its charges, and the differences between both.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst, fence};

use thiscpu::{Account, Ledger};

pub(super) const COUNTERS: usize = 2;

/// Units that the oracle has and an account lacks, and the reverse.
#[derive(Default)]
pub(super) struct Errors {
    lost: AtomicU64,
    doubled: AtomicU64,
}

impl Errors {
    /// Counts the units by which `found` is below `low` or above `high`.
    pub(super) fn expect_within(&self, (low, high): (i64, i64), found: i64) {
        // SeqCst: a weaker order would gain nothing, since errors should never happen.
        if found < low {
            self.lost.fetch_add(low.abs_diff(found), SeqCst);
        } else if found > high {
            self.doubled.fetch_add(high.abs_diff(found), SeqCst);
        }
    }

    pub(super) fn expect(&self, expected: i64, found: i64) {
        self.expect_within((expected, expected), found);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(SeqCst)
    }

    pub(super) fn doubled(&self) -> u64 {
        self.doubled.load(SeqCst)
    }

    pub(super) fn any(&self) -> bool {
        self.lost() + self.doubled() > 0
    }
}

/// The sums of increases and of decreases, so that the amounts in flight of each are known.
///
/// All accesses are SeqCst: all threads see the changes in one order.
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

/// The oracle of one counter. Amounts are added to `begun`, charged, and added to `done`.
#[derive(Default)]
struct Oracle {
    begun: Column,
    done: Column,
}

/// An account with its oracle, which each thread that charges the account updates.
pub(super) struct Tenant {
    pub(super) account: Account<COUNTERS>,
    oracle: [Oracle; COUNTERS],
}

impl Tenant {
    /// Opens an account, and checks that it has no units of the account that closed before it.
    pub(super) fn open(ledger: &Ledger<COUNTERS>, errors: &Errors) -> Self {
        let account = ledger.open();
        account.snapshot().into_iter().for_each(|found| errors.expect(0, found));
        Self { account, oracle: Default::default() }
    }

    /// Records an amount that is going to be charged.
    pub(super) fn begin(&self, index: usize, n: i64) {
        self.oracle[index].begun.add(n);
        // Charges are relaxed. This pairs with the fences in `check_within`: a thread that sees one
        // of them also sees it as begun.
        fence(SeqCst);
    }

    /// Records an amount that was charged.
    pub(super) fn end(&self, index: usize, n: i64) {
        // This pairs with the fences in `check_within`: a thread that sees charges as done sees
        // them.
        fence(SeqCst);
        self.oracle[index].done.add(n);
    }

    /// Charges `n`, or uncharges it if negative, that many times.
    pub(super) fn charge(&self, index: usize, n: i64, times: u32) {
        let all = n * i64::from(times);
        self.begin(index, all);
        match n < 0 {
            true => (0..times).for_each(|_| self.account.uncharge(index, -n)),
            false => (0..times).for_each(|_| self.account.charge(index, n)),
        }
        self.end(index, all);
    }

    /// Transfers `n` units of a counter to another tenant.
    pub(super) fn transfer_to(&self, other: &Self, index: usize, n: i64) {
        self.begin(index, -n);
        other.begin(index, n);
        self.account.transfer_to(&other.account, index, n);
        self.end(index, -n);
        other.end(index, n);
    }

    /// Checks that `read` returns values of some counters within the oracle's bounds.
    fn check_within<const N: usize>(
        &self,
        errors: &Errors,
        indexes: [usize; N],
        read: impl FnOnce() -> [i64; N],
    ) {
        let done = indexes.map(|index| self.oracle[index].done.get());
        fence(SeqCst);
        let found = read();
        fence(SeqCst);
        for (which, index) in indexes.into_iter().enumerate() {
            let ((plus, minus), (plus_max, minus_max)) =
                (done[which], self.oracle[index].begun.get());
            errors.expect_within((plus - minus_max, plus_max - minus), found[which]);
        }
    }

    /// Checks sums and a snapshot while other threads charge the account.
    pub(super) fn check(&self, errors: &Errors) {
        self.check_within(errors, [0], || [self.account.sum(0)]);
        self.check_within(errors, [1], || [self.account.sum(1)]);
        self.check_within(errors, [0, 1], || self.account.snapshot());
    }

    /// Checks the final values, once no thread charges the account, and returns the account.
    pub(super) fn close(self, errors: &Errors) -> Account<COUNTERS> {
        let snapshot = self.account.snapshot();
        for (index, found) in snapshot.into_iter().enumerate() {
            let (plus, minus) = self.oracle[index].done.get();
            errors.expect(plus - minus, found);
            errors.expect(plus - minus, self.account.sum(index));
        }
        self.account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_from_the_oracle_are_counted() {
        let (ledger, errors) = (Ledger::new_signed(), Errors::default());
        let [one, other] = [0; 2].map(|_| Tenant::open(&ledger, &errors));
        one.charge(0, -3, 700);
        one.transfer_to(&other, 1, 40);
        one.begin(0, 9);
        one.account.charge(0, 5);
        one.check(&errors);
        assert!(!errors.any(), "5 of 9 may have been charged by now");
        one.end(0, 9);
        one.check(&errors);
        assert_eq!((errors.lost(), errors.doubled()), (2 * 4, 0));
        other.account.charge(1, 1);
        other.close(&errors);
        assert_eq!((errors.lost(), errors.doubled()), (2 * 4, 2));
    }
}
