//! `per-thread-64`: each thread gathers its charges to one account and flushes after 64 events.
//!
//! The kernel counted the memory of processes in this way until 2022. A task gathered for its own
//! process, charged any other process directly, and flushed after 64 faults and at exit. The amount
//! that threads hold back grows with their number.
//!
//! A task has one process all its life. A thread here has no account of its own: when it charges
//! another account, it flushes and begins to gather for that one. A task finds its counts, which
//! are part of it, with one instruction; here they are a thread-local, whose destructor flushes at
//! exit.

use std::{
    cell::{Cell, RefCell},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    COUNTERS, Contender,
    accounts::{Account, Accounts, Counters, has_accounts},
};

/// The number of charges after which a thread flushes.
const EVENTS_MAX: u32 = 64;

thread_local! {
    static GATHERED: Gathered = const { Gathered::new() };
}

/// The accounts. Threads that have something to flush share them.
pub(crate) struct PerThread64(Arc<Shared>);

struct Shared {
    accounts: Accounts,
    misses: AtomicU64,
}

/// The amounts a thread has gathered, their account, and its ledger.
struct Gathered {
    /// The address of the account's counters, only compared: it is unique among all ledgers.
    owner: Cell<*const Counters>,
    account: Cell<Account>,
    shared: RefCell<Option<Arc<Shared>>>,
    counts: [Cell<i64>; COUNTERS],
    events: Cell<u32>,
    misses: Cell<u64>,
}

impl Gathered {
    const fn new() -> Self {
        Self {
            owner: Cell::new(ptr::null()),
            account: Cell::new(Account::NOBODY),
            shared: RefCell::new(None),
            counts: [const { Cell::new(0) }; COUNTERS],
            events: Cell::new(0),
            misses: Cell::new(0),
        }
    }

    #[inline(always)]
    fn hand_in(&self) {
        self.events.set(0);
        if let Some(shared) = &*self.shared.borrow() {
            let counters = shared.accounts.of(self.account.get());
            for (index, count) in self.counts.iter().enumerate() {
                counters.add(index, count.take());
            }
        }
    }

    /// Flushes, and begins to gather for `account`.
    #[inline(always)]
    fn take_up(&self, shared: &Arc<Shared>, account: Account) {
        self.hand_in();
        let is_known =
            self.shared.borrow().as_ref().is_some_and(|known| Arc::ptr_eq(known, shared));
        if !is_known {
            self.leave();
            *self.shared.borrow_mut() = Some(Arc::clone(shared));
        }
        self.account.set(account);
        self.owner.set(shared.accounts.of(account));
    }

    /// Flushes, and drops the reference to the ledger.
    fn leave(&self) {
        self.hand_in();
        self.owner.set(ptr::null());
        if let Some(shared) = self.shared.take() {
            // Relaxed: adds commute, and the count is read after the thread has been joined.
            shared.misses.fetch_add(self.misses.take(), Relaxed);
        }
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Contender for PerThread64 {
    has_accounts!(0.accounts);

    fn new(accounts: usize) -> Self {
        let accounts = Accounts::new(accounts);
        Self(Arc::new(Shared { accounts, misses: AtomicU64::new(0) }))
    }

    #[inline(always)]
    fn charge(&self, account: &Account, index: usize, n: i64) {
        let counters = self.0.accounts.of(*account);
        GATHERED.with(|gathered| {
            let is_miss = !ptr::eq(gathered.owner.get(), counters);
            if is_miss {
                gathered.take_up(&self.0, *account);
            }
            let (count, events) = (&gathered.counts[index], gathered.events.get() + 1);
            count.set(count.get().wrapping_add(n));
            gathered.events.set(events);
            if events == EVENTS_MAX {
                gathered.hand_in();
            }
            if is_miss || events == EVENTS_MAX {
                gathered.misses.set(gathered.misses.get() + 1);
            }
        });
    }

    fn sync(&self) {
        GATHERED.with(Gathered::leave);
    }

    fn misses(&self) -> Option<u64> {
        // Relaxed: the threads that left have been joined.
        Some(self.0.misses.load(Relaxed))
    }
}
