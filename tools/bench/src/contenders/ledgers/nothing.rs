//! `none`: a ledger without accounts, to time a workload without accounting.

use super::Contender;

/// A ledger whose charges do nothing.
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
