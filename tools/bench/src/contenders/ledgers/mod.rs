//! Accounts of many owners, each with a few counters.

pub(crate) use self::{
    accounts::COUNTERS, atomic::Atomic, kamezawa::Kamezawa, memcg_stock::MemcgStock,
    nothing::Nothing, per_thread_64::PerThread64, this_cpu::ThisCpu,
};
use super::Name;

mod accounts;
mod atomic;
mod kamezawa;
mod memcg_stock;
mod nothing;
mod per_thread_64;
#[cfg(test)]
mod tests;
mod this_cpu;

/// Who competes as a ledger.
pub(crate) const ALL: &[Name] =
    &[Name::Atomic, Name::Kamezawa, Name::PerThread64, Name::MemcgStock, Name::ThisCpu];

/// Accounts that many threads charge.
///
/// Workloads are generic over it, so that each contender's `charge` is inlined into the measured loop.
pub(crate) trait Contender: Send + Sync + Sized {
    /// What whoever charges an account has of it.
    type Account: Send + Sync;

    /// Makes a ledger with room for so many accounts.
    fn new(accounts: usize) -> Self;

    /// Opens an account whose counters are zero.
    fn open(&self) -> Self::Account;

    /// Adds `n`, which may be negative, to a counter of the account.
    fn charge(&self, account: &Self::Account, index: usize, n: i64);

    /// Takes `n` away again.
    #[inline(always)]
    fn uncharge(&self, account: &Self::Account, index: usize, n: i64) {
        self.charge(account, index, -n);
    }

    /// Brings what caches hold into the accounts, when all other threads that charged have been joined.
    fn sync(&self);

    /// A counter of the account, after `sync`.
    fn read(&self, account: &Self::Account, index: usize) -> i64;

    /// How many charges had to touch what all CPUs share, after `sync`, where the design has a cache to spare
    /// them that.
    fn misses(&self) -> Option<u64> {
        None
    }
}

/// Evaluates an expression with `C` standing for the type of the ledger called `$name`.
macro_rules! for_ledger {
    ($name:expr, $C:ident => $body:expr) => {
        for_ledger!(@match $name, $C, $body, Atomic Kamezawa PerThread64 MemcgStock ThisCpu Nothing)
    };
    (@match $name:expr, $C:ident, $body:expr, $($variant:ident)*) => {
        match $name {
            $($crate::contenders::Name::$variant => {
                type $C = $crate::contenders::ledgers::$variant;
                $body
            })*
            other => unreachable!("{other} is no ledger"),
        }
    };
}
pub(crate) use for_ledger;
