//! Ledgers: accounts of many owners, each with a few counters.

pub(crate) use self::{
    accounts::COUNTERS,
    kamezawa::Kamezawa,
    memcg_stock::MemcgStock,
    per_thread_64::PerThread64,
    plain::{Atomic, Nothing, ThisCpu},
};

mod accounts;
mod kamezawa;
mod memcg_stock;
mod per_thread_64;
mod plain;
#[cfg(test)]
mod tests;

family! {
    $ ledgers: Atomic Kamezawa PerThread64 MemcgStock ThisCpu; Nothing
}

/// A ledger whose accounts many threads charge.
pub(crate) trait Contender: Send + Sync + Sized {
    /// The handle by which threads charge an account.
    type Account: Send + Sync;

    /// Creates a ledger with room for `accounts` accounts.
    fn new(accounts: usize) -> Self;

    /// Opens an account whose counters are zero.
    fn open(&self) -> Self::Account;

    /// Adds `n`, which may be negative, to a counter of the account.
    fn charge(&self, account: &Self::Account, index: usize, n: i64);

    #[inline(always)]
    fn uncharge(&self, account: &Self::Account, index: usize, n: i64) {
        self.charge(account, index, -n);
    }

    /// Empties all caches into the accounts, once all other threads that charged were joined.
    fn sync(&self) {}

    /// Returns a counter of the account. Exact after `sync`.
    fn read(&self, account: &Self::Account, index: usize) -> i64;

    /// Counts charges that touched shared memory, exactly after `sync`; `None` without a cache.
    fn misses(&self) -> Option<u64> {
        None
    }
}
