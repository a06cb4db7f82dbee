//! `thiscpu`: the library's ledger, used as programs use it.

use super::{COUNTERS, Contender};

/// The library's own ledger.
pub(crate) struct ThisCpu(::thiscpu::Ledger<COUNTERS>);

impl Contender for ThisCpu {
    type Account = ::thiscpu::Account<COUNTERS>;

    fn new(_: usize) -> Self {
        Self(::thiscpu::Ledger::new())
    }

    fn open(&self) -> Self::Account {
        self.0.open()
    }

    #[inline(always)]
    fn charge(&self, account: &Self::Account, index: usize, n: i64) {
        account.charge(index, n);
    }

    fn sync(&self) {
        self.0.sync();
    }

    fn read(&self, account: &Self::Account, index: usize) -> i64 {
        account.read(index)
    }

    fn misses(&self) -> Option<u64> {
        // The atomic tier has no lanes and therefore no cache.
        let has_lanes = ::thiscpu::tier() != Ok(::thiscpu::Tier::Atomic);
        has_lanes.then(|| ::thiscpu::__test_support::misses(&self.0))
    }
}
