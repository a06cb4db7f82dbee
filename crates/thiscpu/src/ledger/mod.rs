//! Ledgers: per-owner accounting with a cache of accounts on each CPU.

mod bypass;
mod cache;
mod charge;
mod core;
mod evict;
mod exact;
mod free_records;
mod record;
mod recover;
mod registry;
mod room;
mod snapshot_all;
mod snapshot_state;
mod transfer;
mod transfer_log;

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

pub use self::charge::AccountSlot;
use self::core::LedgerCore;
pub use self::record::AccountId;
use self::record::Record;
use crate::sys::atomic::Ordering::{AcqRel, Relaxed};

/// Accounts with `N` counters each, for example of memory by tenant or requests by client.
///
/// A charge goes to this CPU's cache of accounts: one section, no atomic instruction, and no cache
/// line that another CPU writes. Accounts that are charged often are in the cache (up to 1,024
/// accounts of four counters on each CPU). Any other account is charged by one atomic addition. A
/// thread whose charges mostly miss the cache bypasses it for a while.
///
/// | | cost | error | may wait for |
/// |---|---|---|---|
/// | [`charge`], [`uncharge`] | a section, or an addition | none | an exact read of the account |
/// | [`read`] | a few loads | what lanes hold | nothing |
/// | [`sum`], [`snapshot`] | a lock, at most one fence | none | exact reads of the account |
/// | [`transfer_to`] | three locks, some atomics | none | exact reads of both; other transfers |
/// | [`for_each`] | two passes over all, one fence | none | other `for_each`; [`open`] |
///
/// [`charge`]: Account::charge
/// [`uncharge`]: Account::uncharge
/// [`read`]: Account::read
/// [`sum`]: Account::sum
/// [`snapshot`]: Account::snapshot
/// [`transfer_to`]: Account::transfer_to
/// [`for_each`]: Ledger::for_each
/// [`open`]: Ledger::open
///
/// Lanes hold at most 1,024 of each counter, with rare exceptions. No charge is ever lost. Exact
/// reads are true at one instant of the call: `for_each` for all accounts at once, and both sides
/// of a transfer at once.
///
/// In the atomic tier each charge is an atomic addition, and no operation needs a fence. [The
/// design page](crate::design::ledger) describes how a ledger works.
///
/// # Memory
///
/// Memory grows with the number of accounts and with the number of CPUs, never with their product:
/// 8 bytes a counter and 24 bytes an account, and up to 64 KiB a CPU, in steps of pages.
///
/// Records of accounts lie in chunks of 1 MiB. If all accounts of a chunk are closed, its pages
/// return to the system, except those of one chunk.
///
/// # Range
///
/// A counter has 62 bits and wraps around on overflow. An exact read of a counter while it
/// overflows may miss charges to it that are made before the read ends.
///
/// # Memory order
///
/// What a thread did before a charge or a transfer happens before the return of each exact read
/// whose result includes it. `read` orders nothing. [The design page](crate::design::ordering) has
/// the argument for each tier.
///
/// # Where it may be used
///
/// - On any thread, and in children of `fork`, which continue with copies.
/// - Not in signal handlers: a charge may wait for a lock that the interrupted thread holds.
/// - In children of `vfork` or `clone(CLONE_VM)` only within a [`vfork_scope`](crate::vfork_scope).
///
/// # Examples
///
/// ```
/// use thiscpu::Ledger;
///
/// const PAGES: usize = 0;
/// const SWAP: usize = 1;
///
/// let ledger: Ledger<2> = Ledger::new();
/// let (mail, web) = (ledger.open(), ledger.open());
/// mail.charge(PAGES, 300);
/// web.charge(PAGES, 100);
/// mail.transfer_to(&web, PAGES, 50);
/// assert_eq!((mail.sum(PAGES), web.snapshot()), (250, [150, 0]));
/// web.uncharge(PAGES, 150);
///
/// let mut pages = 0;
/// ledger.for_each(|_, counters| pages += counters[PAGES]);
/// assert_eq!((ledger.len(), pages), (2, 250));
/// # let _ = SWAP;
/// ```
pub struct Ledger<const N: usize>(Arc<LedgerCore<N>>);

/// A handle of one account of a [`Ledger`]; 8 bytes.
///
/// Clones are handles of the same account. Dropping the last handle closes the account and discards
/// its counters: read them first, or [transfer](Account::transfer_to) them. It costs a lock, and a
/// few stores to each lane that has the account in its cache; rarely a system call.
pub struct Account<const N: usize>(Record<N>);

impl<const N: usize> Ledger<N> {
    /// Creates a ledger whose counters are never negative.
    ///
    /// The caller uncharges only what it has charged before. [`Account::read`] then returns no
    /// negative value either.
    ///
    /// Allocates its shared state. Lanes get memory when the first account is opened.
    pub fn new() -> Self {
        Ledger(Arc::new(LedgerCore::new(false)))
    }

    /// Creates a ledger whose counters may be negative.
    pub fn new_signed() -> Self {
        Ledger(Arc::new(LedgerCore::new(true)))
    }

    /// Opens an account whose counters are 0.
    ///
    /// Costs about 0.1 µs, and now and then a system call for the memory of the next accounts (up
    /// to some ten thousand). Waits for other callers, for a thread that returns memory of closed
    /// accounts, and for the first half of a [`for_each`](Ledger::for_each).
    ///
    /// # Panics
    ///
    /// If memory is unavailable, or if `THISCPU_TIER` is wrong.
    pub fn open(&self) -> Account<N> {
        let record = self.0.open();
        // The account owns one reference to the shared state, which its drop gives back.
        let _ = ManuallyDrop::new(self.0.clone());
        Account(record)
    }

    pub(crate) fn misses(&self) -> u64 {
        self.0.misses()
    }

    /// Returns how many accounts are open.
    ///
    /// In a child that was forked while other threads opened or closed accounts, the number may
    /// stay wrong by one for each of these threads.
    pub fn len(&self) -> usize {
        self.0.open.load(Relaxed)
    }

    /// Returns whether no account is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Flushes the lanes into the accounts, so that [`Account::read`] misses only later charges.
    ///
    /// Costs a fence for each account in a lane; the account leaves the lane. Waits for exact
    /// reads, and for the first half of a [`for_each`](Ledger::for_each).
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Counter::sum`](crate::Counter::sum).
    pub fn sync(&self) {
        self.0.sync();
    }

    /// Calls `f` with each open account and its counters, all as of one instant of this call.
    ///
    /// The order of accounts is unspecified.
    ///
    /// First the counters are copied, to 16 bytes a counter and 24 bytes an account, which takes
    /// about 0.15 µs an account. Charges continue meanwhile, but more slowly: a charge of an
    /// account that has been copied takes its lock, in the first half of that time each, in the
    /// second half the first one. [`open`](Ledger::open) waits for the first half, another
    /// `for_each` for both. Then `f` is called, without locks, so it may use the ledger.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Counter::sum`](crate::Counter::sum), and if `f` panics.
    pub fn for_each(&self, mut f: impl FnMut(AccountId, [i64; N])) {
        self.0.snapshot_all().into_iter().for_each(|(id, counters)| f(id, counters));
    }
}

impl<const N: usize> Default for Ledger<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Clone for Ledger<N> {
    /// Returns a handle of the same ledger.
    fn clone(&self) -> Self {
        Ledger(self.0.clone())
    }
}

// SAFETY: a handle refers to a record, whose fields are atomics, and to the ledger's shared state,
// which is `Sync`.
unsafe impl<const N: usize> Send for Account<N> {}
// SAFETY: a shared handle gives access to the record and the ledger's shared state only, and both
// are `Sync`.
unsafe impl<const N: usize> Sync for Account<N> {}

impl<const N: usize> Account<N> {
    pub(crate) fn slot(&self) -> AccountSlot {
        self.0.slot()
    }

    /// Adds `n` to counter `index`.
    ///
    /// Costs one section if this CPU has the account in its cache, else one atomic addition. Waits
    /// only for an exact read or a transfer of the same account: [`sum`](Account::sum),
    /// [`snapshot`](Account::snapshot), [`transfer_to`](Account::transfer_to) and
    /// [`Ledger::for_each`]. Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`, or if `THISCPU_TIER` is wrong.
    #[inline(always)]
    pub fn charge(&self, index: usize, n: i64) {
        assert!(index < N, "thiscpu: no such counter: the index must be below the N of the ledger");
        self.0.charge(index, n);
    }

    /// Subtracts `n` from counter `index`; otherwise like [`charge`](Account::charge).
    #[inline(always)]
    pub fn uncharge(&self, index: usize, n: i64) {
        self.charge(index, n.wrapping_neg());
    }

    /// Adds `n` to counter `index` without using this CPU's cache of accounts.
    ///
    /// For tasks that charge other owners' accounts, such as a cleaner: their charges do not evict
    /// the accounts that this CPU uses. Costs one atomic addition. Waits as
    /// [`charge`](Account::charge) does.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`, or if `THISCPU_TIER` is wrong.
    pub fn charge_uncached(&self, index: usize, n: i64) {
        assert!(index < N, "thiscpu: no such counter: the index must be below the N of the ledger");
        crate::sys::startup::tier_or_panic();
        self.0.charge_shared(index, n);
    }

    /// Returns counter `index`, without the charges that lanes hold.
    ///
    /// Lanes rarely hold more than 1,024 each. Costs a few loads. Never negative, except in a
    /// [signed](Ledger::new_signed) ledger.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`.
    pub fn read(&self, index: usize) -> i64 {
        assert!(index < N, "thiscpu: no such counter: the index must be below the N of the ledger");
        self.0.ledger().recover_after_fork();
        let value = self.0.value(index);
        if self.0.chunk().is_signed { value } else { value.max(0) }
    }

    /// Returns the exact value of counter `index`, at one instant of this call.
    ///
    /// Costs one lock; if the account is in a lane, also one fence and a read of each lane in use.
    /// Waits for other exact reads of this account and for transfers from or to it.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`, and under the conditions of
    /// [`Counter::sum`](crate::Counter::sum).
    pub fn sum(&self, index: usize) -> i64 {
        assert!(index < N, "thiscpu: no such counter: the index must be below the N of the ledger");
        self.0.ledger().sum(self.0, index)
    }

    /// Returns the exact values of all counters, at one instant of this call.
    ///
    /// Costs what [`sum`](Account::sum) costs, and one or two atomic instructions a counter.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Counter::sum`](crate::Counter::sum).
    pub fn snapshot(&self) -> [i64; N] {
        self.0.ledger().snapshot(self.0)
    }

    /// Stores the exact values of all counters, at one instant of this call.
    ///
    /// Costs and waits as [`snapshot`](Account::snapshot) does.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Counter::sum`](crate::Counter::sum). Then `values` is unchanged.
    ///
    /// ```
    /// let ledger = thiscpu::Ledger::<2>::new();
    /// let account = ledger.open();
    /// account.charge(1, 300);
    /// let mut values = [0; 2];
    /// account.snapshot_into(&mut values);
    /// assert_eq!(values, [0, 300]);
    /// ```
    pub fn snapshot_into(&self, values: &mut [i64; N]) {
        *values = self.snapshot();
    }

    /// Moves `n` from counter `index` of this account to that of `other`, at one instant.
    ///
    /// An observer of both accounts sees both changes or neither, and a child that is forked
    /// meanwhile has both or neither. Costs three locks and some atomic instructions. Waits for
    /// exact reads of both accounts and for other transfers of the ledger. Does nothing if both are
    /// the same account.
    ///
    /// # Panics
    ///
    /// If `other` is an account of another ledger, or if `index` is not below `N`.
    pub fn transfer_to(&self, other: &Account<N>, index: usize, n: i64) {
        assert!(index < N, "thiscpu: no such counter: the index must be below the N of the ledger");
        assert!(
            self.is_same_ledger(other),
            "thiscpu: transfer refused: the other account belongs to another ledger"
        );
        if self.0 != other.0 {
            self.0.ledger().transfer(self.0, other.0, index, n);
        }
    }

    /// Returns whether both accounts belong to one ledger, so that a transfer is possible.
    pub fn is_same_ledger(&self, other: &Account<N>) -> bool {
        std::ptr::eq(self.0.ledger(), other.0.ledger())
    }

    pub(crate) fn shares_set_with(&self, other: &Account<N>) -> bool {
        let shared = self.0.ledger();
        shared.set_of(self.0) == shared.set_of(other.0)
    }

    /// Returns the account's id, which no other account of the ledger ever has.
    pub fn id(&self) -> AccountId {
        self.0.id()
    }
}

impl<const N: usize> Clone for Account<N> {
    /// Returns a handle of the same account. Aborts the process at 2^31 handles.
    fn clone(&self) -> Self {
        // Relaxed: the caller has a handle, so the count cannot reach 0 meanwhile.
        let handles = self.0.handles().fetch_add(1, Relaxed);
        // As in `Arc`: a count that wraps around would free an account in use.
        if handles > u32::MAX / 2 {
            std::process::abort();
        }
        Account(self.0)
    }
}

impl<const N: usize> Drop for Account<N> {
    fn drop(&mut self) {
        // AcqRel: everything done through other handles happens before the account is closed.
        if self.0.handles().fetch_add(1_u32.wrapping_neg(), AcqRel) == 1 {
            let shared = self.0.chunk().ledger;
            self.0.ledger().close(self.0);
            // SAFETY: this is the account's own reference, which `open` left to it by not dropping
            // the clone.
            unsafe { Arc::decrement_strong_count(shared) };
        }
    }
}

impl<const N: usize> fmt::Debug for Ledger<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<const N: usize> fmt::Debug for Account<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("id", &self.id()).finish_non_exhaustive()
    }
}
