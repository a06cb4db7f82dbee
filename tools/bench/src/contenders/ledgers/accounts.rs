//! Accounts as all contenders but the library have them: four words, in one array.
//!
//! In the kernel an account is part of its owner, whose address everyone has who charges it; caches may
//! hold that address because they are emptied before the owner goes. Here an account is a place in an array
//! that is as old as the ledger, so that a cache may name an account as long as it likes.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// Counters of an account.
pub(crate) const COUNTERS: usize = 4;

/// What all CPUs share of one account. None lies across two cache lines.
#[derive(Default)]
#[repr(align(32))]
pub(super) struct Counters([AtomicI64; COUNTERS]);

impl Counters {
    // Relaxed, both: a counter is only ever added up, and read when those who charged it are joined.

    /// Adds `n`, touching nothing for 0.
    #[inline(always)]
    pub(super) fn add(&self, index: usize, n: i64) {
        if n != 0 {
            self.0[index].fetch_add(n, Relaxed);
        }
    }

    fn read(&self, index: usize) -> i64 {
        self.0[index].load(Relaxed)
    }
}

/// An account's place, as large as the address that it stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(8))]
pub(crate) struct Account(pub(super) u32);

impl Account {
    /// Whose account it is that an empty cache names.
    pub(super) const NOBODY: Self = Self(0);
}

/// All accounts of a ledger, after nobody's.
pub(super) struct Accounts {
    counters: Box<[Counters]>,
    opened: AtomicU32,
}

impl Accounts {
    /// Makes room for `count` accounts.
    pub(super) fn new(count: usize) -> Self {
        let counters = (0..=count).map(|_| Counters::default()).collect();
        Self { counters, opened: AtomicU32::new(1) }
    }

    pub(super) fn open(&self) -> Account {
        // Relaxed: a place is given out once, and has been empty since before anybody knew the ledger.
        let place = self.opened.fetch_add(1, Relaxed);
        assert!((place as usize) < self.counters.len(), "there is no room for another account");
        Account(place)
    }

    /// What all CPUs share of `account`.
    #[inline(always)]
    pub(super) fn of(&self, account: Account) -> &Counters {
        &self.counters[account.0 as usize]
    }

    pub(super) fn read(&self, account: Account, index: usize) -> i64 {
        self.of(account).read(index)
    }
}
