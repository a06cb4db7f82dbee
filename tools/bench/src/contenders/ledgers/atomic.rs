//! `atomic`: the shared words of an account, without a cache: the design before all the others.

use super::{
    Contender,
    accounts::{Account, Accounts},
};

/// The accounts.
pub(crate) struct Atomic(Accounts);

impl Contender for Atomic {
    type Account = Account;

    fn new(accounts: usize) -> Self {
        Self(Accounts::new(accounts))
    }

    fn open(&self) -> Account {
        self.0.open()
    }

    #[inline(always)]
    fn charge(&self, account: &Account, index: usize, n: i64) {
        self.0.of(*account).add(index, n);
    }

    fn sync(&self) {}

    fn read(&self, account: &Account, index: usize) -> i64 {
        self.0.read(*account, index)
    }
}
