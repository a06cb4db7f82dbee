//! A lane's cache of accounts: sets of four ways, each a key and what was charged since.
//!
//! ```text
//! lane 0 (shared): | - |
//! lane i:          | misses : 8 | - : 56 | keys | counter 0 | counter 1 | ... | seen |
//! each of these:   | way 0..4 of set 0 : 32 | way 0..4 of set 1 : 32 | ... |
//! ```
//!
//! A key is the address of the account's record; 0 if the way is free, and then its counters are 0. Keys and counters
//! are changed by sections on the lane's CPU, and by whoever holds the account's lock once the key has
//! [`EVICTING`] in it. Only who holds that lock puts that there, or the key.
//! What was *seen* is a digest of a way's counters, by which it is told whether anybody charges it.

use crate::lanes::table::{self, STRIDE};
use crate::sys::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, Release},
};

pub(super) const WAYS: usize = 4;

/// In a key: nobody can charge this way, and what it holds is the business of whoever holds the account's lock.
pub(super) const EVICTING: u64 = 1;

/// From the start of the item to the keys.
pub(super) const HEADER_BYTES: usize = 64;
const SET_BYTES: usize = 8 * WAYS;

/// The most that a ledger takes of a lane.
const BYTES_MAX: usize = 64 * 1024;

/// Spreads keys, which are 8 bytes apart: 2^29 divided by the golden ratio.
const SPREAD: u32 = 0x13c6_ef37;

/// How many sets there are, a power of two: 256 for four counters, so that 1,024 accounts fit into a lane. One in
/// models, whose accounts should meet.
const fn sets(counters: usize) -> usize {
    let mut sets = if cfg!(thiscpu_model) { 1 } else { 256 };
    while HEADER_BYTES + row_bytes(sets) * (2 + counters) > BYTES_MAX {
        sets /= 2;
    }
    sets
}

/// From a row to the next, with a line between them: at a multiple of 4,096 the processor takes the load of a key for
/// one of the counter that was stored just now, until it has compared whole addresses.
const fn row_bytes(sets: usize) -> usize {
    sets * SET_BYTES + 64
}

/// The bytes of a cache in each lane.
pub(super) const fn bytes(counters: usize) -> usize {
    HEADER_BYTES + row_bytes(sets(counters)) * (2 + counters)
}

/// From a way's key to its counter `index`.
#[inline(always)]
pub(super) const fn counter_offset(index: usize, counters: usize) -> usize {
    row_bytes(sets(counters)) * (1 + index)
}

/// Where the set is that the account of `key` can be in, from the first.
#[inline(always)]
pub(super) fn set_of(key: u64, counters: usize) -> usize {
    let bits = (sets(counters) * SET_BYTES).trailing_zeros();
    let spread = (key as u32).wrapping_mul(SPREAD);
    (spread >> (u32::BITS - bits)) as usize & !(SET_BYTES - 1)
}

/// All ways of the cache at `item` in all lanes in use.
pub(super) fn all_ways<const N: usize>(item: usize) -> impl Iterator<Item = Way<N>> {
    let keys = item + HEADER_BYTES;
    (0..sets(N)).flat_map(move |set| Way::in_all_lanes(keys + set * SET_BYTES))
}

/// One way of one lane, with `N` counters.
#[derive(Clone, Copy)]
pub(super) struct Way<const N: usize> {
    address: usize,
    way_id: u32,
}

impl<const N: usize> Way<N> {
    /// Way `way` of the set at `set`, which is an address in lane 0, in lane `lane`.
    fn of(set: usize, lane: usize, way: usize) -> Self {
        debug_assert!(lane > 0 && way < WAYS);
        Way { address: set + lane * STRIDE + 8 * way, way_id: (lane * WAYS + way) as u32 }
    }

    /// The same in the lane of table entry `entry`.
    pub(super) fn at_entry(set: usize, entry: usize, way: usize) -> Self {
        Way::of(set, table::lane_of(entry), way)
    }

    /// All ways of the set at `set` in all lanes in use.
    pub(super) fn in_all_lanes(set: usize) -> impl Iterator<Item = Self> {
        let lanes = 1..=table::in_use();
        lanes.flat_map(move |lane| (0..WAYS).map(move |way| Way::of(set, lane, way)))
    }

    /// A number that no other way of the set has in any lane; not 0.
    pub(super) fn way_id(self) -> u32 {
        self.way_id
    }

    fn word(self) -> &'static AtomicU64 {
        // SAFETY: a ledger's item has this word in each lane in use, accessible for ever and accessed in
        // words of 8 bytes only. The ledger that owns the item outlives this reference: no caller
        // keeps it.
        unsafe { &*(self.address as *const AtomicU64) }
    }

    /// Relaxed: whoever acts on it compares in a section, or owns the way.
    pub(super) fn key(self) -> u64 {
        self.word().load(Relaxed)
    }

    /// By its owner. Release: pairs with the fence after a claim; whoever finds the key finds the counters.
    pub(super) fn set_key(self, key: u64) {
        self.word().store(key, Release);
    }

    /// What was charged to counter `index`.
    pub(super) fn counter(self, index: usize) -> &'static AtomicI64 {
        // SAFETY: as for `word`.
        unsafe { &*((self.address + counter_offset(index, N)) as *const AtomicI64) }
    }

    /// Whether its counters are what they were when this was asked last, so that hardly anybody charges it.
    pub(super) fn is_idle(self) -> bool {
        // Relaxed, all of it: an estimate.
        let digest = (0..N).fold(1_u64, |digest, index| {
            digest.rotate_left(5) ^ self.counter(index).load(Relaxed) as u64
        });
        let seen = self.counter(N);
        let before = seen.load(Relaxed);
        seen.store(digest as i64, Relaxed);
        before == digest as i64
    }
}

/// How many charges found no way of their account in lane `lane`, about.
pub(super) fn misses(item: usize, lane: usize) -> &'static AtomicU64 {
    // SAFETY: as for `Way::word`.
    unsafe { &*((item + lane * STRIDE) as *const AtomicU64) }
}

/// The same in the lane of table entry `entry`.
pub(super) fn misses_at_entry(item: usize, entry: usize) -> &'static AtomicU64 {
    // SAFETY: as for `Way::word`.
    unsafe { &*((item + table::distance_of(entry)) as *const AtomicU64) }
}
