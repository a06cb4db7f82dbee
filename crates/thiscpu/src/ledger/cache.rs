//! A lane's cache of accounts: sets of four ways, each a key and what was charged since.
//!
//! ```text
//! lane 0 (shared): | - |
//! lane i:          | misses : 8 | - : 56 | set 0 | set 1 | ... |
//! a set:           | key of way 0..4 : 32 | counter 0 of way 0..4 : 32 | counter 1 ... | seen 0..4 : 32 |
//! ```
//!
//! A key is the address of the account's record; 0 if the way is free, and then its counters are 0. With
//! [`LEAVING`] in it, the way belongs to whoever holds that account's lock. Keys and counters are changed by
//! sections on the lane's CPU, and by the owner of a way that is leaving or of an account whose gate is closed.
//! What was *seen* is a digest of a way's counters, by which it is told whether anybody charges it.

use crate::lanes::table::{self, BIAS, STRIDE};
use crate::sys::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, Release},
};

pub(super) const WAYS: usize = 4;

/// How many sets there are, a power of two: 256 accounts fit into a lane.
pub(super) const SETS: usize = 64;

/// In a key: nobody can charge this way any more, and what it holds is on its way to the account.
pub(super) const LEAVING: u64 = 1;

const HEADER_BYTES: usize = 64;
const ROW_BYTES: usize = 8 * WAYS;

/// The bytes of a set with `counters` counters.
const fn set_bytes(counters: usize) -> usize {
    ROW_BYTES * (2 + counters)
}

/// The bytes of a cache in each lane.
pub(super) const fn bytes(counters: usize) -> usize {
    HEADER_BYTES + SETS * set_bytes(counters)
}

/// From a way's key to its counter `index`.
pub(super) const fn cell(index: usize) -> usize {
    ROW_BYTES * (1 + index)
}

/// Where set `set` of the cache at `item` is.
pub(super) fn set_at(item: usize, set: usize, counters: usize) -> usize {
    item + HEADER_BYTES + set * set_bytes(counters)
}

/// One way of one lane.
#[derive(Clone, Copy)]
pub(super) struct Way {
    address: usize,
}

impl Way {
    /// Way `way` of the set at `set`, which is an address in lane 0, in lane `lane`.
    pub(super) fn of(set: usize, lane: usize, way: usize) -> Way {
        debug_assert!(lane > 0 && way < WAYS);
        Way { address: set + lane * STRIDE + 8 * way }
    }

    /// The same in the lane of table entry `entry`.
    pub(super) fn at_entry(set: usize, entry: usize, way: usize) -> Way {
        Way { address: set + entry + BIAS + 8 * way }
    }

    /// All ways of the set at `set` in all lanes in use.
    pub(super) fn in_all_lanes(set: usize) -> impl Iterator<Item = Way> {
        let lanes = 1..=table::in_use();
        lanes.flat_map(move |lane| (0..WAYS).map(move |way| Way::of(set, lane, way)))
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

    /// By its owner. Release: pairs with the fence after a claim, and with the dependency from a gate to
    /// its set; whoever finds the key finds the counters.
    pub(super) fn set_key(self, key: u64) {
        self.word().store(key, Release);
    }

    /// What was charged to counter `index`.
    pub(super) fn counter(self, index: usize) -> &'static AtomicI64 {
        // SAFETY: as for `word`.
        unsafe { &*((self.address + cell(index)) as *const AtomicI64) }
    }
}

impl Way {
    /// Whether its counters are what they were when this was asked last, so that hardly anybody charges it.
    pub(super) fn is_idle(self, counters: usize) -> bool {
        // Relaxed, all of it: an estimate.
        let digest = (0..counters).fold(1_u64, |digest, index| {
            digest.rotate_left(5) ^ self.counter(index).load(Relaxed) as u64
        });
        let seen = self.counter(counters);
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
    unsafe { &*((item + entry + BIAS) as *const AtomicU64) }
}
