//! The ledgers of a few lines: shared words, and the library's ledger.

use super::{
    COUNTERS, Contender,
    accounts::{Account, Accounts, has_accounts},
};

/// `atomic`: the shared words of an account, without a cache. All others came after it.
pub(crate) struct Atomic(Accounts);

impl Contender for Atomic {
    has_accounts!(0);

    fn new(accounts: usize) -> Self {
        Self(Accounts::new(accounts))
    }

    #[inline(always)]
    fn charge(&self, account: &Account, index: usize, n: i64) {
        self.0.of(*account).add(index, n);
    }
}

/// `thiscpu`: the library's ledger, used as programs use it.
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

/// `none`: a ledger without accounts, to time a workload without accounting.
pub(crate) struct Nothing;

impl Contender for Nothing {
    type Account = ();

    fn new(_accounts: usize) -> Self {
        Self
    }

    fn open(&self) {}

    #[inline(always)]
    fn charge(&self, _account: &(), _index: usize, _n: i64) {}

    fn read(&self, _account: &(), _index: usize) -> i64 {
        0
    }
}
