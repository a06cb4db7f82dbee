//! `none`: a ledger that keeps no accounts, so that a workload can be timed without accounting.

use super::Contender;

/// Keeps no account at all.
pub(crate) struct Nothing;

impl Contender for Nothing {
    type Account = ();

    fn new(_accounts: usize) -> Self {
        Self
    }

    fn open(&self) {}

    #[inline(always)]
    fn charge(&self, _account: &(), _index: usize, _n: i64) {}

    fn sync(&self) {}

    fn read(&self, _account: &(), _index: usize) -> i64 {
        0
    }
}
