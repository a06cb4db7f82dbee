//! `kamezawa`, design D: each CPU caches the counters of one owner.
//!
//! A charge of the cached owner is added to the cache. Another owner's charge takes the cache over: what it
//! has gathered goes to the owner before, and it begins with the new one's.
//!
//! The kernel changes its cache by plain instructions with preemption off. A program can be preempted between
//! looking at the owner and adding to the count, so here the owner is written beside each count, and one
//! compare-exchange changes both. Each of the four counters is therefore taken over for itself. (A lock of
//! each CPU's was tried: with more threads than CPUs its holder is often preempted, and all others go past
//! the cache until it runs again.) The kernel's side path, for faulting in somebody else's memory, goes past
//! the cache too; here nobody needs it.
//!
//! The kernel empties its cache when the scheduler switches to another owner and when a thread exits. Programs
//! hear of neither: here it is emptied when it is taken over and by `sync`, and the work that the design added
//! to each switch costs nothing. Readers that clamp negatives have no counterpart, since here all is read
//! after `sync`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    COUNTERS, Contender,
    accounts::{Account, Accounts},
};
use crate::contenders::lanes::Lanes;

/// The accounts, and each CPU's cache.
pub(crate) struct Kamezawa {
    accounts: Accounts,
    caches: Lanes<Cache>,
}

/// What one CPU has gathered in each counter, and the charges that it did not serve.
#[derive(Default)]
struct Cache {
    gathered: [AtomicU64; COUNTERS],
    misses: AtomicU64,
}

/// A count and whose it is, in one word: the owner in the upper half, the count in the lower.
#[derive(Clone, Copy)]
struct Gathered {
    owner: Account,
    count: i32,
}

impl Gathered {
    #[inline(always)]
    fn of_word(word: u64) -> Self {
        Self { owner: Account((word >> 32) as u32), count: word as i32 }
    }

    #[inline(always)]
    fn word(self) -> u64 {
        u64::from(self.owner.0) << 32 | u64::from(self.count as u32)
    }
}

impl Contender for Kamezawa {
    type Account = Account;

    fn new(accounts: usize) -> Self {
        Self { accounts: Accounts::new(accounts), caches: Lanes::new() }
    }

    fn open(&self) -> Account {
        self.accounts.open()
    }

    #[inline(always)]
    fn charge(&self, account: &Account, index: usize, n: i64) {
        let cache = self.caches.here();
        let gathered = &cache.gathered[index];
        // Relaxed, here and below: counts are only ever added up.
        let mut word = gathered.load(Relaxed);
        loop {
            let before = Gathered::of_word(word);
            let is_hit = before.owner == *account;
            let count = if is_hit { i64::from(before.count) + n } else { n };
            let Ok(count) = i32::try_from(count) else {
                cache.misses.fetch_add(1, Relaxed);
                return self.accounts.of(*account).add(index, n);
            };
            let after = Gathered { owner: *account, count }.word();
            match gathered.compare_exchange_weak(word, after, Relaxed, Relaxed) {
                Ok(_) if is_hit => return,
                Ok(_) => {
                    cache.misses.fetch_add(1, Relaxed);
                    return self.accounts.of(before.owner).add(index, before.count.into());
                }
                Err(now) => word = now,
            }
        }
    }

    fn sync(&self) {
        for cache in self.caches.iter() {
            for (index, gathered) in cache.gathered.iter().enumerate() {
                // Relaxed: counts are only ever added up.
                let Gathered { owner, count } = Gathered::of_word(gathered.swap(0, Relaxed));
                self.accounts.of(owner).add(index, count.into());
            }
        }
    }

    fn read(&self, account: &Account, index: usize) -> i64 {
        self.accounts.read(*account, index)
    }

    fn misses(&self) -> Option<u64> {
        // Relaxed: only ever added up.
        Some(self.caches.iter().map(|cache| cache.misses.load(Relaxed)).sum())
    }
}
