//! `kamezawa`, design D: each CPU caches the counters of one owner.
//!
//! A charge of the cached owner is added to the cache. A charge of another owner takes the cache
//! over: its content goes to the previous owner, and the cache begins with the new charge.
//!
//! The kernel changes its cache with plain instructions while preemption is off. A program can be
//! preempted between checking the owner and adding to the count. Here each count therefore has its
//! owner beside it, and one compare-exchange changes both; each of the four counters is taken over
//! separately. A lock per CPU is no alternative: with more threads than CPUs its holder is often
//! preempted, and all other threads bypass the cache until it runs again. The kernel also bypasses
//! its cache when it faults in another owner's memory; no workload here needs that path.
//!
//! The kernel empties its cache when the scheduler switches to another owner and when a thread
//! exits. A program sees neither event: here a takeover or `sync` empties the cache, and the work
//! that the design adds to each switch costs nothing. The kernel's readers clamp negative values;
//! readers here do not, because they read after `sync`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    COUNTERS, Contender,
    accounts::{Account, Accounts, has_accounts},
};
use crate::contenders::lanes::Lanes;

pub(crate) struct Kamezawa {
    accounts: Accounts,
    caches: Lanes<Cache>,
}

/// The amounts one CPU has gathered for each counter, and the number of its cache misses.
#[derive(Default)]
struct Cache {
    gathered: [AtomicU64; COUNTERS],
    misses: AtomicU64,
}

/// A count and its owner in one word: the owner in the upper half, the count in the lower.
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
    has_accounts!(accounts);

    fn new(accounts: usize) -> Self {
        Self { accounts: Accounts::new(accounts), caches: Lanes::default() }
    }

    #[inline(always)]
    fn charge(&self, account: &Account, index: usize, n: i64) {
        let cache = self.caches.here();
        let gathered = &cache.gathered[index];
        // Relaxed, here and below: adds commute, and accounts are read after all threads have been
        // joined.
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
                // Relaxed: all threads that charged have been joined.
                let Gathered { owner, count } = Gathered::of_word(gathered.swap(0, Relaxed));
                self.accounts.of(owner).add(index, count.into());
            }
        }
    }

    fn misses(&self) -> Option<u64> {
        // Relaxed: all threads that charged have been joined.
        Some(self.caches.iter().map(|cache| cache.misses.load(Relaxed)).sum())
    }
}
