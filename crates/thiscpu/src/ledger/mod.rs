//! Ledgers: accounting for any number of owners from a cache on each CPU.

mod bypass;
mod cache;
mod charge;
mod core;
mod evict;
mod exact;
mod record;
mod recover;
mod registry;
mod snapshot_all;
mod snapshot_state;
mod transfer;
mod transfer_log;

pub(crate) use self::registry::NO_MEMORY;

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

pub use self::charge::AccountSlot;
use self::core::LedgerCore;
pub use self::record::AccountId;
use self::record::Record;
use crate::sys::atomic::Ordering::{AcqRel, Relaxed};

/// Accounts with `N` counters each: the memory of tenants, the pages of processes, the requests of clients.
///
/// A charge goes to a block for its account in this CPU's cache: one section, no atomic instruction, no line that
/// another CPU writes. Accounts that are charged often are cached (up to 1,024 of four counters on each CPU), the others are
/// charged by one atomic addition; so are all by a thread whose charges mostly miss the cache, for a while. So memory
/// grows with accounts and with CPUs, never with both multiplied: 8 bytes a counter and 24 bytes an account, and up to 64
/// KiB a CPU, in steps of pages.
///
/// | | cost | error | blocks whom |
/// |---|---|---|---|
/// | [`Account::charge`], [`uncharge`](Account::uncharge) | a section; an atomic addition if the account is not in the cache | none: nothing is lost | nobody; waits for an exact read of the same account |
/// | [`Account::read`] | one load | what lanes hold, up to 1,024 for each | nobody |
/// | [`Account::sum`], [`snapshot`](Account::snapshot) | one lock; if the account is cached one fence, and a look at each lane in use | 0: at one instant within the call | exact reads and moves of the same account, and who charges it just then, if without a section |
/// | [`Account::transfer_to`] | some atomic instructions and three locks | 0: both sides at once | as `sum`, for both accounts; other moves |
/// | [`Ledger::for_each`] | two passes over all accounts, and one fence | 0: all at one instant | charges for a moment, while their account is copied, but see there; [`open`](Ledger::open) for half of the time |
///
/// Counters are 62 bits wide and wrap around beyond; an exact read at that very time may miss what is charged to that counter until the read ends. How it works: [the essay](crate::essays::ledger).
///
/// **Where it may be used.** On any thread. In children of `fork`, which go on with copies. Not in signal
/// handlers: a charge may wait for a lock that the interrupted thread holds. A child of `vfork` or
/// `clone(CLONE_VM)` must not use it.
///
/// In the atomic tier each charge is an atomic addition, and no fence is needed.
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

/// One account of a [`Ledger`]. Clones are the same account; it is closed when the last of them goes. 8 bytes.
pub struct Account<const N: usize>(Record<N>);

impl<const N: usize> Ledger<N> {
    /// A ledger whose counters are never negative: whoever uncharges has charged before. Then [`Account::read`]
    /// shows no negative values either.
    pub fn new() -> Self {
        Ledger(Arc::new(LedgerCore::new(false)))
    }

    /// A ledger whose counters may be negative.
    pub fn new_signed() -> Self {
        Ledger(Arc::new(LedgerCore::new(true)))
    }

    /// Opens an account whose counters are 0. Waits for others who do, and for the first half of
    /// [`for_each`](Ledger::for_each). About 0.1 us; takes memory from the system for some ten thousand accounts at a time.
    ///
    /// # Panics
    ///
    /// If there is no memory, or `THISCPU_TIER` is wrong.
    pub fn open(&self) -> Account<N> {
        let record = self.0.open();
        // The account keeps what it shares with the ledger.
        let _ = ManuallyDrop::new(self.0.clone());
        Account(record)
    }

    pub(crate) fn misses(&self) -> u64 {
        self.0.misses()
    }

    /// How many accounts are open. In a child that was forked while other threads opened or closed some, one of each may
    /// be counted wrongly, for good.
    pub fn len(&self) -> usize {
        self.0.open.load(Relaxed)
    }

    /// Whether no account is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds what lanes hold to the accounts it belongs to, so that [`Account::read`] misses only what is
    /// charged afterwards. A fence for each account in a lane, which it leaves. Waits for the first half of
    /// [`for_each`](Ledger::for_each).
    ///
    /// # Panics
    ///
    /// As [`Counter::sum`](crate::Counter::sum).
    pub fn sync(&self) {
        self.0.sync();
    }

    /// Calls `f` with each open account and its counters, all at one instant within this call, in no order that means
    /// anything.
    ///
    /// First the counters are copied, into memory for all of them: 16 bytes a counter and 24 an account. That takes about 0.15
    /// us an account, and charges go on, more slowly: in the first half of that time each charge of an account that has been
    /// noted takes its lock, in the second the first charge of each. [`open`](Ledger::open) waits for the first half, and another
    /// `for_each` for all of it. `f` is called after that, and may do anything.
    ///
    /// # Panics
    ///
    /// As [`Counter::sum`](crate::Counter::sum), and if `f` does.
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
    /// The same ledger.
    fn clone(&self) -> Self {
        Ledger(self.0.clone())
    }
}

// SAFETY: a handle is a reference to a record, whose fields are atomics, and to what the ledger shares.
unsafe impl<const N: usize> Send for Account<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Account<N> {}

impl<const N: usize> Account<N> {
    pub(crate) fn slot(&self) -> AccountSlot {
        self.0.slot()
    }

    /// Adds `n` to counter `index`.
    ///
    /// A section if this CPU has the account in its cache, else an atomic addition. Waits only for
    /// [`sum`](Account::sum), [`snapshot`](Account::snapshot), [`transfer_to`](Account::transfer_to) and
    /// [`Ledger::for_each`], if they need this account.
    ///
    /// # Panics
    ///
    /// If there is no counter `index`, or `THISCPU_TIER` is wrong.
    #[inline(always)]
    pub fn charge(&self, index: usize, n: i64) {
        assert!(index < N, "thiscpu: an account has no such counter");
        self.0.charge(index, n);
    }

    /// Takes `n` from counter `index`. Otherwise as [`charge`](Account::charge).
    #[inline(always)]
    pub fn uncharge(&self, index: usize, n: i64) {
        self.charge(index, n.wrapping_neg());
    }

    /// As [`charge`](Account::charge), for who charges somebody else's account: it does not get into this CPU's
    /// cache, in the place of accounts that belong there. One atomic addition.
    ///
    /// # Panics
    ///
    /// As [`charge`](Account::charge).
    pub fn charge_uncached(&self, index: usize, n: i64) {
        assert!(index < N, "thiscpu: an account has no such counter");
        crate::sys::startup::tier_or_panic();
        self.0.charge_shared(index, n);
    }

    /// Counter `index` without what lanes hold of it: seldom more than 1,024 for each lane in use. A few loads. Not
    /// negative, unless counters may be.
    ///
    /// # Panics
    ///
    /// If there is no counter `index`.
    pub fn read(&self, index: usize) -> i64 {
        assert!(index < N, "thiscpu: an account has no such counter");
        self.0.ledger().recover_after_fork();
        let value = self.0.value(index);
        if self.0.chunk().is_signed { value } else { value.max(0) }
    }

    /// Counter `index`, exactly, at one instant within this call. One lock, and one fence if the account is in a lane.
    ///
    /// # Panics
    ///
    /// If there is no counter `index`, and as [`Counter::sum`](crate::Counter::sum).
    pub fn sum(&self, index: usize) -> i64 {
        assert!(index < N, "thiscpu: an account has no such counter");
        self.0.ledger().sum(self.0, index)
    }

    /// All counters, exactly, at one instant within this call. As [`sum`](Account::sum), and an atomic instruction or two a
    /// counter.
    ///
    /// # Panics
    ///
    /// As [`Counter::sum`](crate::Counter::sum).
    pub fn snapshot(&self) -> [i64; N] {
        self.0.ledger().snapshot(self.0)
    }

    /// Takes `n` from counter `index` of this account and adds it to that of `other`, at one instant: whoever looks
    /// at both sees both or neither, and so does a child forked meanwhile.
    ///
    /// # Panics
    ///
    /// If `other` is an account of another ledger, or there is no counter `index`.
    pub fn transfer_to(&self, other: &Account<N>, index: usize, n: i64) {
        assert!(index < N, "thiscpu: an account has no such counter");
        assert!(
            self.is_same_ledger(other),
            "thiscpu: units cannot be moved to an account of another ledger"
        );
        if self.0 != other.0 {
            self.0.ledger().transfer(self.0, other.0, index, n);
        }
    }

    /// Whether both are accounts of one ledger, so that [`transfer_to`](Account::transfer_to) may be asked for.
    pub fn is_same_ledger(&self, other: &Account<N>) -> bool {
        std::ptr::eq(self.0.ledger(), other.0.ledger())
    }

    pub(crate) fn shares_set_with(&self, other: &Account<N>) -> bool {
        let shared = self.0.ledger();
        shared.set_of(self.0) == shared.set_of(other.0)
    }

    /// Which account this is.
    pub fn id(&self) -> AccountId {
        self.0.id()
    }
}

impl<const N: usize> Clone for Account<N> {
    /// The same account. Ends the process if it has 2^31 handles.
    fn clone(&self) -> Self {
        // Relaxed: who clones a handle has one.
        let handles = self.0.handles().fetch_add(1, Relaxed);
        // As `Arc` does: a count that wraps around would free what is in use.
        if handles > u32::MAX / 2 {
            std::process::abort();
        }
        Account(self.0)
    }
}

impl<const N: usize> Drop for Account<N> {
    fn drop(&mut self) {
        // AcqRel: what others did with their handles comes before the account is closed.
        if self.0.handles().fetch_add(1_u32.wrapping_neg(), AcqRel) == 1 {
            let shared = self.0.chunk().ledger;
            self.0.ledger().close(self.0);
            // SAFETY: the account's own reference, which `open` left to it.
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
