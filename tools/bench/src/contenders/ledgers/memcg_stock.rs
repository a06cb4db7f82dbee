//! `memcg-stock`: the memory cgroups' cache of charges: seven owners per CPU in one cache line.
//!
//! A charge is paid from this CPU's stock for the owner. If the stock is too small, 64 units are
//! charged to the owner's shared counter at once, and the remainder is stocked. If all seven places
//! are taken, it replaces a random owner's stock, which goes back to that owner's counter. An
//! uncharge goes to the stock; a stock that grows past 64 units goes back to the counter entirely.
//! Shared counters are therefore ahead by the units in stock.
//!
//! The kernel stocks one amount for each owner. An account has four counters, so here an owner is a
//! counter of an account, and seven of those share the line. The kernel changes its stocks with
//! plain instructions while preemption is off; here an owner and its units are one word, changed by
//! compare-exchange. Two threads on one CPU can give an owner two places, which wastes a place but
//! loses nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    COUNTERS, Contender,
    accounts::{Account, Accounts, has_accounts},
};
use crate::contenders::lanes::Lanes;

const PLACES: usize = 7;

/// The largest stock in units, and the amount that is charged at once to fill one.
const BATCH: i64 = 64;

pub(crate) struct MemcgStock {
    accounts: Accounts,
    caches: Lanes<Cache>,
}

/// One CPU's stocks, and the number of charges that missed them: one cache line.
#[derive(Default)]
struct Cache {
    places: [AtomicU64; PLACES],
    misses: AtomicU64,
}

const _: () = assert!(size_of::<Cache>() == 64);

/// Units and their owner in one word: the units in the lowest byte, the owner above.
#[derive(Clone, Copy)]
struct Stock {
    owner: Owner,
    units: i64,
}

impl Stock {
    #[inline(always)]
    fn of_word(word: u64) -> Self {
        Self { owner: Owner(word >> 8), units: (word & 0xff) as i64 }
    }

    /// Packs the stock into a word. `units` must be in `0..=BATCH`.
    #[inline(always)]
    fn word(self) -> u64 {
        self.owner.0 << 8 | self.units as u64
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner(u64);

impl Owner {
    /// The owner of a place that was never used.
    const NOBODY: Self = Self::new(Account::NOBODY, 0);

    #[inline(always)]
    const fn new(account: Account, index: usize) -> Self {
        Self(account.0 as u64 * COUNTERS as u64 + index as u64)
    }
}

impl Cache {
    #[inline(always)]
    fn place_of(&self, owner: Owner) -> Option<&AtomicU64> {
        // Relaxed: each change of a place checks its owner again.
        self.places.iter().find(|place| Stock::of_word(place.load(Relaxed)).owner == owner)
    }

    /// Pays `n` from the owner's stock, or adds a negative `n` to it; returns whether it fitted.
    #[inline(always)]
    fn pay(&self, owner: Owner, n: i64) -> bool {
        let paid = |word| {
            let stock = Stock::of_word(word);
            let units = stock.units - n;
            let is_served = stock.owner == owner && (0..=BATCH).contains(&units);
            is_served.then(|| Stock { owner, units }.word())
        };
        // Relaxed, both: adds commute, and accounts are read after all threads have been joined.
        self.place_of(owner).is_some_and(|place| place.fetch_update(Relaxed, Relaxed, paid).is_ok())
    }

    /// Puts `units` into stock, and returns the stock that must go back to its counter instead.
    #[inline(always)]
    fn stock(&self, owner: Owner, units: i64) -> Stock {
        let known = self.place_of(owner).or_else(|| self.place_of(Owner::NOBODY));
        let place = known.unwrap_or_else(|| &self.places[fastrand::usize(..PLACES)]);
        // Relaxed, here and below: adds commute, and accounts are read after all threads have been
        // joined.
        let mut word = place.load(Relaxed);
        loop {
            let before = Stock::of_word(word);
            let (after, goes_back) = if before.owner != owner {
                (units, before)
            } else if before.units + units > BATCH {
                (0, Stock { owner, units: before.units + units })
            } else {
                (before.units + units, Stock { owner, units: 0 })
            };
            let after = Stock { owner, units: after }.word();
            match place.compare_exchange_weak(word, after, Relaxed, Relaxed) {
                Ok(_) => return goes_back,
                Err(now) => word = now,
            }
        }
    }
}

impl MemcgStock {
    /// Charges the shared counter, and stocks the remainder.
    #[inline(always)]
    fn charge_shared(&self, cache: &Cache, owner: Owner, n: i64) {
        let charged = if n > 0 { n.max(BATCH) } else { 0 };
        let left = charged - n;
        if left > BATCH {
            return self.add(owner, n);
        }
        self.add(owner, charged);
        if left > 0 {
            let Stock { owner, units } = cache.stock(owner, left);
            self.add(owner, -units);
        }
    }

    #[inline(always)]
    fn add(&self, owner: Owner, n: i64) {
        let account = Account((owner.0 / COUNTERS as u64) as u32);
        self.accounts.of(account).add(owner.0 as usize % COUNTERS, n);
    }
}

impl Contender for MemcgStock {
    has_accounts!(accounts);

    fn new(accounts: usize) -> Self {
        Self { accounts: Accounts::new(accounts), caches: Lanes::default() }
    }

    #[inline(always)]
    fn charge(&self, account: &Account, index: usize, n: i64) {
        let (cache, owner) = (self.caches.here(), Owner::new(*account, index));
        if !cache.pay(owner, n) {
            // Relaxed: the count is read after all threads have been joined.
            cache.misses.fetch_add(1, Relaxed);
            self.charge_shared(cache, owner, n);
        }
    }

    fn sync(&self) {
        for place in self.caches.iter().flat_map(|cache| &cache.places) {
            // Relaxed: all threads that charged have been joined.
            let Stock { owner, units } = Stock::of_word(place.swap(0, Relaxed));
            self.add(owner, -units);
        }
    }

    fn misses(&self) -> Option<u64> {
        // Relaxed: all threads that charged have been joined.
        Some(self.caches.iter().map(|cache| cache.misses.load(Relaxed)).sum())
    }
}
