//! An auditor between writers and a budget. Its oracle finds grants past the limit, and refusals
//! that no instant of the call explains.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use anyhow::ensure;

use crate::{
    contenders::{Padded, budgets::Contender},
    metric::{AUDITED, OVER_GRANTS, REFUSED, Reading, WRONG_REFUSALS},
};

/// A budget with an oracle that checks each call.
pub(super) struct Audit<'a, C> {
    budget: &'a C,
    limit: i64,
    /// Whether the limit suffices for all writers, so that every refusal is wrong.
    is_enough: bool,
    oracle: Padded<Oracle>,
}

/// The amounts that the calls so far imply, and counts of calls.
///
/// All accesses are SeqCst: every thread sees an amount change on the same side of the call that it
/// belongs to, before or after.
#[derive(Default)]
struct Oracle {
    /// Units that are certainly held: added after a grant, subtracted before a release.
    held: AtomicI64,
    /// Units of all requests so far: added before the call.
    requested: AtomicI64,
    /// Those of them that are certainly available again: added after a refusal or a release.
    ended: AtomicI64,
    grants: AtomicU64,
    refusals: AtomicU64,
    releases: AtomicU64,
    over_grants: AtomicU64,
    wrong_refusals: AtomicU64,
}

impl<'a, C: Contender> Audit<'a, C> {
    pub(super) fn new(budget: &'a C, limit: u64, is_enough: bool) -> Self {
        Self { budget, limit: limit as i64, is_enough, oracle: Padded::default() }
    }

    /// Fails if a contender that claims to be right granted or refused wrongly.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Oracle { over_grants, wrong_refusals, .. } = &*self.oracle;
        let [over, wrong] = [over_grants, wrong_refusals].map(|count| count.load(SeqCst));
        ensure!(
            !C::IS_RIGHT || (over, wrong) == (0, 0),
            "{over} grants past the limit and {wrong} wrong refusals in {} calls",
            self.calls()
        );
        Ok(())
    }

    pub(super) fn calls(&self) -> u64 {
        let Oracle { grants, refusals, releases, .. } = &*self.oracle;
        [grants, refusals, releases].map(|count| count.load(SeqCst)).into_iter().sum()
    }

    pub(super) fn readings(&self) -> [Reading; 4] {
        let Oracle { grants, refusals, over_grants, wrong_refusals, .. } = &*self.oracle;
        let [grants, refusals, over, wrong] =
            [grants, refusals, over_grants, wrong_refusals].map(|count| count.load(SeqCst) as f64);
        [
            OVER_GRANTS.reads(over),
            WRONG_REFUSALS.reads(wrong),
            AUDITED.reads(self.calls() as f64),
            REFUSED.reads(100.0 * refusals / (grants + refusals).max(1.0)),
        ]
    }
}

impl<C: Contender> Contender for Audit<'_, C> {
    const IS_RIGHT: bool = C::IS_RIGHT;

    fn new(_: u64) -> Self {
        unreachable!("an auditor is made for an existing budget")
    }

    fn try_acquire(&self, n: u64) -> bool {
        let (oracle, units) = (&*self.oracle, n as i64);
        let ended_before = oracle.ended.load(SeqCst);
        oracle.requested.fetch_add(units, SeqCst);
        if self.budget.try_acquire(n) {
            let held = oracle.held.fetch_add(units, SeqCst) + units;
            oracle.grants.fetch_add(1, SeqCst);
            oracle.over_grants.fetch_add(u64::from(held > self.limit), SeqCst);
            return true;
        }
        // No more than this was held at any instant of the call, the requested `units` included.
        let held_max = oracle.requested.load(SeqCst) - ended_before;
        let is_wrong = self.is_enough || held_max <= self.limit;
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
