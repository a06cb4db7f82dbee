//! The accounts of all contenders except the library: four words each, in one array.
//!
//! In the kernel an account is part of its owner, and every charge has the owner's address. Caches
//! may hold that address because they are emptied before the owner goes away. Here an account is an
//! index into an array that lives as long as the ledger, so a cache may name an account forever.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

pub(crate) const COUNTERS: usize = 4;

/// The counters of one account, shared by all CPUs. They never straddle two cache lines.
#[derive(Default)]
#[repr(align(32))]
pub(super) struct Counters([AtomicI64; COUNTERS]);

impl Counters {
    // Relaxed, both: adds commute, and a counter is read after the threads that charged it have
    // been joined.

    /// Adds `n`. An add of 0 touches no memory.
    #[inline(always)]
    pub(super) fn add(&self, index: usize, n: i64) {
        if n != 0 {
            self.0[index].fetch_add(n, Relaxed);
        }
    }

    pub(super) fn read(&self, index: usize) -> i64 {
        self.0[index].load(Relaxed)
    }
}

/// The index of an account, as large as the address that it stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(8))]
pub(crate) struct Account(pub(super) u32);

impl Account {
    /// The account that an empty cache names.
    pub(super) const NOBODY: Self = Self(0);
}

/// All accounts of a ledger, after the one of [`Account::NOBODY`].
pub(super) struct Accounts {
    counters: Box<[Counters]>,
    opened: AtomicU32,
}

impl Accounts {
    pub(super) fn new(count: usize) -> Self {
        let counters = (0..=count).map(|_| Counters::default()).collect();
        Self { counters, opened: AtomicU32::new(1) }
    }

    pub(super) fn open(&self) -> Account {
        // Relaxed: each index is handed out once, and its counters were zero before any thread
        // knew the ledger.
        let place = self.opened.fetch_add(1, Relaxed);
        assert!((place as usize) < self.counters.len(), "the ledger has no room for an account");
        Account(place)
    }

    #[inline(always)]
    pub(super) fn of(&self, account: Account) -> &Counters {
        &self.counters[account.0 as usize]
    }
}

/// Implements the parts of a contender that all designs with [`Accounts`] in a field share.
macro_rules! has_accounts {
    ($($field:tt).+) => {
        type Account = $crate::contenders::ledgers::accounts::Account;

        fn open(&self) -> Self::Account {
            self.$($field).+.open()
        }

        fn read(&self, account: &Self::Account, index: usize) -> i64 {
            self.$($field).+.of(*account).read(index)
        }
    };
}
pub(super) use has_accounts;
