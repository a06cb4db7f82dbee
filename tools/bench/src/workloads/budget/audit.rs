//! An auditor between writers and a budget: it keeps oracle that find grants past the limit and refusals
//! that no instant can explain.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use crate::contenders::{Padded, budgets::Contender};

/// Oracle on one budget, and the budget's calls with the oracle kept.
pub(super) struct Audit<'a, C> {
    budget: &'a C,
    limit: i64,
    /// Whether nobody can ever be refused rightly.
    is_enough: bool,
    oracle: Padded<Oracle>,
}

// SeqCst on all of them: an amount is written down before or after the call that it belongs to,
// in that order for everybody.
#[derive(Default)]
struct Oracle {
    /// What is surely held: written down after it was granted, crossed out before it is released.
    held: AtomicI64,
    /// All that was ever asked for, before the call.
    asked: AtomicI64,
    /// Of that, what is surely free again: after it was refused or released.
    ended: AtomicI64,
    grants: AtomicU64,
    refusals: AtomicU64,
    releases: AtomicU64,
    over_grants: AtomicU64,
    wrong_refusals: AtomicU64,
}

impl<'a, C> Audit<'a, C> {
    pub(super) fn new(budget: &'a C, limit: u64, is_enough: bool) -> Self {
        Self { budget, limit: limit as i64, is_enough, oracle: Padded::default() }
    }

    /// Grants with which more was held than the limit allows.
    pub(super) fn over_grants(&self) -> u64 {
        self.oracle.over_grants.load(SeqCst)
    }

    /// Refusals of what was free at every instant of the call.
    pub(super) fn wrong_refusals(&self) -> u64 {
        self.oracle.wrong_refusals.load(SeqCst)
    }

    pub(super) fn calls(&self) -> u64 {
        let Oracle { grants, refusals, releases, .. } = &*self.oracle;
        [grants, refusals, releases].map(|count| count.load(SeqCst)).into_iter().sum()
    }

    /// Of the calls that acquire, how many were refused.
    pub(super) fn refused_percent(&self) -> f64 {
        let [grants, refusals] =
            [&self.oracle.grants, &self.oracle.refusals].map(|n| n.load(SeqCst));
        100.0 * refusals as f64 / (grants + refusals).max(1) as f64
    }
}

impl<C: Contender> Contender for Audit<'_, C> {
    const IS_RIGHT: bool = C::IS_RIGHT;

    fn new(_: u64) -> Self {
        unreachable!("an auditor is made for a budget that is there")
    }

    fn try_acquire(&self, n: u64) -> bool {
        let (oracle, units) = (&*self.oracle, n as i64);
        let ended_before = oracle.ended.load(SeqCst);
        oracle.asked.fetch_add(units, SeqCst);
        if self.budget.try_acquire(n) {
            let held = oracle.held.fetch_add(units, SeqCst) + units;
            oracle.grants.fetch_add(1, SeqCst);
            oracle.over_grants.fetch_add(u64::from(held > self.limit), SeqCst);
            return true;
        }
        // At no instant of the call was more held than this, which has the `units` asked for in it.
        let most_held = oracle.asked.load(SeqCst) - ended_before;
        let is_wrong = self.is_enough || most_held <= self.limit;
        oracle.ended.fetch_add(units, SeqCst);
        oracle.refusals.fetch_add(1, SeqCst);
        oracle.wrong_refusals.fetch_add(u64::from(is_wrong), SeqCst);
        false
    }

    fn release(&self, n: u64) {
        let (oracle, units) = (&*self.oracle, n as i64);
        oracle.held.fetch_sub(units, SeqCst);
        self.budget.release(n);
        oracle.ended.fetch_add(units, SeqCst);
        oracle.releases.fetch_add(1, SeqCst);
    }

    fn available(&self) -> i64 {
        self.budget.available()
    }
}
