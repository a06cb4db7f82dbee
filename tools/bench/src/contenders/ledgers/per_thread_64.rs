//! `per-thread-64`: each thread gathers what it charges to one account, and hands it in after 64 events.
//!
//! So the kernel counted the memory of processes until 2022: a task gathered for its own process, charged any
//! other process directly, and handed in after 64 faults and when it exited. What threads hold back grows with
//! their number.
//!
//! A task has one process all its life; a thread here has no account of its own, so one that charges another
//! account hands in what it has and takes that one up. A task's counts are part of it, found by one
//! instruction; here they are a thread-local, whose destructor hands in at exit.

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
    accounts::{Account, Accounts, Counters},
};

/// Charges after which a thread hands in.
const EVENTS_MAX: u32 = 64;

thread_local! {
    static GATHERED: Gathered = const { Gathered::new() };
}

/// The accounts, which threads have a share in that have something to hand in.
pub(crate) struct PerThread64(Arc<Shared>);

struct Shared {
    accounts: Accounts,
    misses: AtomicU64,
}

/// What a thread has gathered, for whom, and where that is to be handed in.
struct Gathered {
    /// The account's counters, of whichever ledger. They are only compared, never looked into.
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

    /// Hands in the counts.
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

    /// Hands in, and begins to gather for `account`.
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

    /// Hands in, and forgets the ledger.
    fn leave(&self) {
        self.hand_in();
        self.owner.set(ptr::null());
        if let Some(shared) = self.shared.take() {
            // Relaxed: only ever added up, and read when whoever left has been joined.
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
    type Account = Account;

    fn new(accounts: usize) -> Self {
        let accounts = Accounts::new(accounts);
        Self(Arc::new(Shared { accounts, misses: AtomicU64::new(0) }))
    }

    fn open(&self) -> Account {
        self.0.accounts.open()
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

    fn read(&self, account: &Account, index: usize) -> i64 {
        self.0.accounts.read(*account, index)
    }

    fn misses(&self) -> Option<u64> {
        // Relaxed: pairs with nothing; whoever left has been joined.
        Some(self.0.misses.load(Relaxed))
    }
}
