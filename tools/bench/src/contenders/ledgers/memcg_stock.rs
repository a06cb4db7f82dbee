//! `memcg-stock`: the kernel's charge cache of memory cgroups, with seven owners a CPU in one cache line.
//!
//! A charge is paid from what this CPU has in stock for the owner. If that is too little, 64 units are charged
//! to the owner's shared counter at once, and what is left of them is stocked, in place of a random owner's
//! stock if all seven places are taken: that goes back to its counter. What is uncharged goes to the stock,
//! and all of a stock that grows past 64 units back to the counter. Shared counters are therefore ahead by
//! what is in stock.
//!
//! The kernel stocks one amount for each owner. An account has four counters, so here an owner is a counter of
//! an account, and seven of those share the line. The kernel changes its stocks by plain instructions with
//! preemption off; here an owner and its units are one word, changed by a compare-exchange. Two threads that
//! meet at a CPU's stocks can give an owner two places, which is a place wasted, but nothing lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    COUNTERS, Contender,
    accounts::{Account, Accounts},
};
use crate::contenders::lanes::Lanes;

/// Owners that a CPU has places for.
const PLACES: usize = 7;

/// The most units of a stock, and what is charged at once to have one.
const BATCH: i64 = 64;

/// The accounts, and each CPU's stocks.
pub(crate) struct MemcgStock {
    accounts: Accounts,
    caches: Lanes<Cache>,
}

/// One CPU's stocks, and the charges that they did not serve: a cache line.
#[derive(Default)]
struct Cache {
    places: [AtomicU64; PLACES],
    misses: AtomicU64,
}

const _: () = assert!(size_of::<Cache>() == 64);

/// Units and whose they are, in one word: the units in the lowest byte, the owner above.
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

    /// The units must be from none to a batch.
    #[inline(always)]
    fn word(self) -> u64 {
        self.owner.0 << 8 | self.units as u64
    }
}

/// A counter of an account, told from all others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner(u64);

impl Owner {
    /// Whose a place is that was never used.
    const NOBODY: Self = Self::new(Account::NOBODY, 0);

    #[inline(always)]
    const fn new(account: Account, index: usize) -> Self {
        Self(account.0 as u64 * COUNTERS as u64 + index as u64)
    }
}

impl Cache {
    #[inline(always)]
    fn place_of(&self, owner: Owner) -> Option<&AtomicU64> {
        // Relaxed: whoever changes the place makes sure whose it is.
        self.places.iter().find(|place| Stock::of_word(place.load(Relaxed)).owner == owner)
    }

    /// Pays `n` from the owner's stock, or takes it back into the stock; whether that could be done.
    #[inline(always)]
    fn pay(&self, owner: Owner, n: i64) -> bool {
        let paid = |word| {
            let stock = Stock::of_word(word);
            let units = stock.units - n;
            let is_served = stock.owner == owner && (0..=BATCH).contains(&units);
            is_served.then(|| Stock { owner, units }.word())
        };
        // Relaxed, both: units are only ever added up.
        self.place_of(owner).is_some_and(|place| place.fetch_update(Relaxed, Relaxed, paid).is_ok())
    }

    /// Puts `units` into stock, and returns what has to go back to a counter for that.
    #[inline(always)]
    fn stock(&self, owner: Owner, units: i64) -> Stock {
        let known = self.place_of(owner).or_else(|| self.place_of(Owner::NOBODY));
        let place = known.unwrap_or_else(|| &self.places[fastrand::usize(..PLACES)]);
        // Relaxed, here and below: units are only ever added up.
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
    /// Charges what was not in stock.
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

    /// Adds to the owner's shared counter.
    #[inline(always)]
    fn add(&self, owner: Owner, n: i64) {
        let account = Account((owner.0 / COUNTERS as u64) as u32);
        self.accounts.of(account).add(owner.0 as usize % COUNTERS, n);
    }
}

impl Contender for MemcgStock {
    type Account = Account;

    fn new(accounts: usize) -> Self {
        Self { accounts: Accounts::new(accounts), caches: Lanes::new() }
    }

    fn open(&self) -> Account {
        self.accounts.open()
    }

    #[inline(always)]
    fn charge(&self, account: &Account, index: usize, n: i64) {
        let (cache, owner) = (self.caches.here(), Owner::new(*account, index));
        if !cache.pay(owner, n) {
            // Relaxed: only ever added up.
            cache.misses.fetch_add(1, Relaxed);
            self.charge_shared(cache, owner, n);
        }
    }

    fn sync(&self) {
        for place in self.caches.iter().flat_map(|cache| &cache.places) {
            // Relaxed: units are only ever added up.
            let Stock { owner, units } = Stock::of_word(place.swap(0, Relaxed));
            self.add(owner, -units);
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
