//! A lane's cache of accounts: sets of four ways, each with a key and the charges since.
//!
//! ```text
//! lane 0 (shared): | - |
//! lane i:          | misses : 8 | - : 56 | keys | counter 0 | counter 1 | ... | digests |
//! each of these:   | way 0..4 of set 0 : 32 | way 0..4 of set 1 : 32 | ... |
//! ```
//!
//! A key is the address of the account's record. It is 0 if the way is free, and then the counters
//! are 0 too.
//!
//! Sections on the lane's CPU change keys and counters. Once a key has [`EVICTING`] set, the holder
//! of the account's lock changes them. Only that thread sets the bit or installs the key.
//!
//! A digest of a way's counters shows whether the way is still charged.

use crate::lanes::table::{self, STRIDE};
use crate::sys::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, Release},
};

pub(super) const WAYS: usize = 4;

/// The bit of a key that stops charges: the way belongs to the holder of the account's lock.
pub(super) const EVICTING: u64 = 1;

/// The distance from the start of the item to the keys.
pub(super) const HEADER_BYTES: usize = 64;
const SET_BYTES: usize = 8 * WAYS;

const BYTES_MAX: usize = 64 * 1024;

/// A multiplier that spreads keys, which are 8 bytes apart: 2^29 / the golden ratio.
const SPREAD: u32 = 0x13c6_ef37;

/// Returns the number of sets, a power of two.
///
/// It is 256 for up to four counters, so that 1,024 accounts fit into a lane. Models have one set,
/// so that their accounts meet in it.
const fn sets(counters: usize) -> usize {
    let mut sets = if cfg!(thiscpu_model) { 1 } else { 256 };
    while HEADER_BYTES + row_bytes(sets) * (2 + counters) > BYTES_MAX {
        sets /= 2;
    }
    sets
}

/// Returns the distance from a row to the next, which leaves a cache line between them.
///
/// At a distance of a multiple of 4,096 the processor takes the load of a key for one of the
/// counter just stored, until it has compared whole addresses.
const fn row_bytes(sets: usize) -> usize {
    sets * SET_BYTES + 64
}

/// Returns the bytes of a cache in each lane.
pub(super) const fn bytes(counters: usize) -> usize {
    HEADER_BYTES + row_bytes(sets(counters)) * (2 + counters)
}

/// Returns the distance from a way's key to its counter `index`.
#[inline(always)]
pub(super) const fn counter_offset(index: usize, counters: usize) -> usize {
    row_bytes(sets(counters)) * (1 + index)
}

/// Returns the distance from the first set to the one that the account of `key` belongs to.
#[inline(always)]
pub(super) fn set_of(key: u64, counters: usize) -> usize {
    let bits = (sets(counters) * SET_BYTES).trailing_zeros();
    let spread = (key as u32).wrapping_mul(SPREAD);
    (spread >> (u32::BITS - bits)) as usize & !(SET_BYTES - 1)
}

/// Returns all ways of the cache at `item`, in all lanes in use.
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
    /// Returns way `way` in lane `lane` of the set at `set`, an address in lane 0.
    fn of(set: usize, lane: usize, way: usize) -> Self {
        debug_assert!(lane > 0 && way < WAYS);
        Way { address: set + lane * STRIDE + 8 * way, way_id: (lane * WAYS + way) as u32 }
    }

    /// Returns way `way` of the set at `set` in the lane of table entry `entry`.
    pub(super) fn at_entry(set: usize, entry: usize, way: usize) -> Self {
        Way::of(set, table::lane_of(entry), way)
    }

    pub(super) fn in_all_lanes(set: usize) -> impl Iterator<Item = Self> {
        let lanes = 1..=table::in_use();
        lanes.flat_map(move |lane| (0..WAYS).map(move |way| Way::of(set, lane, way)))
    }

    /// Returns a number that is unique among the ways of the set in all lanes, and not 0.
    pub(super) fn way_id(self) -> u32 {
        self.way_id
    }

    fn word(self) -> &'static AtomicU64 {
        // SAFETY: a ledger's item has this word in each lane in use. It stays accessible forever,
        // and is accessed as 8 bytes only. The ledger that owns the item outlives this reference,
        // because no caller keeps it.
        unsafe { &*(self.address as *const AtomicU64) }
    }

    /// Loads the key.
    ///
    /// Relaxed: a caller that acts on it compares it again in a section, or owns the way.
    pub(super) fn key(self) -> u64 {
        self.word().load(Relaxed)
    }

    /// Stores the key. The caller owns the way.
    ///
    /// Release: pairs with the fence in `occupy`. A thread that finds this key finds the counters.
    pub(super) fn set_key(self, key: u64) {
        self.word().store(key, Release);
    }

    /// Returns the charges to counter `index`, or the digest after the last.
    pub(super) fn counter(self, index: usize) -> &'static AtomicI64 {
        // SAFETY: a ledger's item has `N` counters and a digest for each way in each lane in use,
        // with the properties that `word` states.
        unsafe { &*((self.address + counter_offset(index, N)) as *const AtomicI64) }
    }

    /// Returns whether the counters are unchanged since the last call, so that the way is idle.
    pub(super) fn is_idle(self) -> bool {
        // Relaxed, all loads and stores here: the result is an estimate.
        let digest = (0..N).fold(1_u64, |digest, index| {
            digest.rotate_left(5) ^ self.counter(index).load(Relaxed) as u64
        });
        let seen = self.counter(N);
        let before = seen.load(Relaxed);
        seen.store(digest as i64, Relaxed);
        before == digest as i64
    }
}

/// Returns the approximate number of charges that missed in lane `lane`.
pub(super) fn misses(item: usize, lane: usize) -> &'static AtomicU64 {
    // SAFETY: a ledger's item begins with this word in each lane in use, with the properties that
    // `Way::word` states.
    unsafe { &*((item + lane * STRIDE) as *const AtomicU64) }
}

/// Returns the approximate number of misses in the lane of table entry `entry`.
pub(super) fn misses_at_entry(item: usize, entry: usize) -> &'static AtomicU64 {
    // SAFETY: a ledger's item begins with this word in each lane in use, with the properties that
    // `Way::word` states.
    unsafe { &*((item + table::distance_of(entry)) as *const AtomicU64) }
}
