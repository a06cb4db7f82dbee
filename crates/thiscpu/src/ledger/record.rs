//! An account's record, and the chunks that records live in.
//!
//! ```text
//! | header : 64 | counter 0 of each record | counter 1 of each | ... | rest of each record |
//! ```
//!
//! A row for each counter, so that charges that find their account in no lane touch one line of a row where
//! eight accounts share it, and nothing else of the account. A record is named by the address of its counter 0, its
//! *key*. Its memory is never given back to the system while the ledger lives, so a key in a lane always leads to
//! a record.
//!
//! Each counter is a word:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | changes with each transfer from a lane or between accounts, in the same addition, so that a child forked in the middle of a transfer can tell whether that was done |
//! | 1 to 62 | the value, less what is in lanes, plus 2^61 |
//! | 63 | noted: somebody has noted the value, for a snapshot or a report |
//!
//! A charge is one addition, whatever bit 63 says. If it is set, the charge came after what was noted, and who charged does not
//! return before that is settled, under the account's lock. It is the sign so that a charge learns of it from the
//! addition's flags, without the sum.

use std::fmt;
use std::ptr::NonNull;

use super::core::LedgerCore;
use crate::sys::atomic::{
    AtomicI64, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::lock::Lock;

const PARITY: i64 = 1;
const VALUE_SHIFT: u32 = 1;
/// A word whose value is 0.
const ZERO: i64 = 1 << 62;
const CAPTURED: i64 = i64::MIN;

/// One account's record, by its key: the address of its counter 0.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Record<const N: usize>(NonNull<AtomicI64>);

/// Which account of its ledger: different for each that was ever open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(u64);

impl AccountId {
    /// The number that it is.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a record is besides its counters.
#[repr(C)]
struct Metadata {
    /// Held by whoever needs the account to hold still, or to change in which lanes it is.
    lock: Lock,
    handles: AtomicU32,
    /// The transfer under way; see [`Transfer`].
    transfer: AtomicU32,
    /// How often it was opened and closed: odd while it is open.
    opens: AtomicU32,
    /// In how many ways of lanes it is.
    way_count: AtomicU32,
    /// Whether it is noted: the words' signs only say that a charge has to come to the lock.
    is_captured: AtomicU32,
}

/// A transfer to one counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) index: usize,
    /// Where from: a way, or [`ANOTHER_ACCOUNT`].
    pub(super) way_id: u32,
    /// What bit 0 was before.
    parity: i64,
}

/// A value of 62 bits, which wraps around beyond.
pub(super) fn wrapped(value: i64) -> i64 {
    (value << 2) >> 2
}

/// The value in a word.
fn value(word: i64) -> i64 {
    ((word & !CAPTURED) - ZERO) >> VALUE_SHIFT
}

/// The place of what comes from another account, or goes there.
pub(super) const ANOTHER_ACCOUNT: u32 = 0;

impl<const N: usize> Record<N> {
    /// The record that `key` leads to.
    ///
    /// # Safety
    ///
    /// The key is a record's, whose ledger outlives what is returned.
    pub(super) unsafe fn of_key(key: u64) -> Record<N> {
        // SAFETY: a record's address is not 0.
        Record(unsafe { NonNull::new_unchecked(key as *mut AtomicI64) })
    }

    /// What sections look for in a lane.
    #[inline(always)]
    pub(super) fn key(self) -> u64 {
        self.0.as_ptr() as u64
    }

    #[inline(always)]
    pub(super) fn chunk<'a>(self) -> &'a Chunk<N> {
        let chunk = self.key() as usize & !(CHUNK_BYTES - 1);
        // SAFETY: every record is in a chunk, which is aligned to its size and stays while the ledger does.
        unsafe { &*(chunk as *const Chunk<N>) }
    }

    pub(super) fn ledger<'a>(self) -> &'a LedgerCore<N> {
        // SAFETY: the handle keeps it.
        unsafe { &*self.chunk().ledger }
    }

    /// The id of its account.
    pub(super) fn id(self) -> AccountId {
        AccountId(u64::from(self.opens() / 2) << 32 | u64::from(self.number()))
    }

    /// Its place in its chunk.
    fn index(self) -> usize {
        (self.key() as usize % CHUNK_BYTES - size_of::<Chunk<N>>()) / size_of::<AtomicI64>()
    }

    /// Its number, which no other record of the ledger has.
    pub(super) fn number(self) -> u32 {
        self.chunk().first + self.index() as u32
    }

    #[inline(always)]
    fn word<'a>(self, counter: usize) -> &'a AtomicI64 {
        debug_assert!(counter < N);
        let at = self.key() as usize + counter * Chunk::<N>::ROW_BYTES;
        // SAFETY: rows follow each other; this record has its word in each, at the same place.
        unsafe { &*(at as *const AtomicI64) }
    }

    fn metadata<'a>(self) -> &'a Metadata {
        let metadata = std::ptr::from_ref(self.chunk()) as usize + Chunk::<N>::METADATA_AT;
        // SAFETY: what follows the rows is a `Metadata` for each record; it began as zeros, which is one.
        unsafe { &*((metadata + self.index() * size_of::<Metadata>()) as *const Metadata) }
    }

    pub(super) fn lock<'a>(self) -> &'a Lock {
        &self.metadata().lock
    }

    pub(super) fn handles<'a>(self) -> &'a AtomicU32 {
        &self.metadata().handles
    }

    /// Charges the account itself, in whatever lanes it is. Whether it was not noted.
    #[inline(always)]
    pub(super) fn charge_word(self, counter: usize, n: i64) -> bool {
        let n = n << VALUE_SHIFT;
        // AcqRel: a sum that sees a later charge of this thread to another counter sees this one.
        self.word(counter).fetch_add(n, AcqRel).wrapping_add(n) >= 0
    }

    /// A counter's value, less what is in lanes. Acquire: whoever charged it before.
    pub(super) fn value(self, counter: usize) -> i64 {
        value(self.word(counter).load(Acquire))
    }

    /// Captures the values of its words, each at an instant of its own. Whoever charges them after that comes to the lock. Under
    /// its lock.
    pub(super) fn begin_capture(self) -> [i64; N] {
        self.metadata().is_captured.store(1, Relaxed);
        std::array::from_fn(|counter| value(self.word(counter).fetch_or(CAPTURED, AcqRel)))
    }

    /// Takes the signs away, also those that a fork or an overflow has left. Under its lock.
    pub(super) fn end_capture(self) {
        (0..N).for_each(|counter| _ = self.word(counter).fetch_and(!CAPTURED, AcqRel));
        self.metadata().is_captured.store(0, Relaxed);
    }

    /// Whether charges come to the lock.
    pub(super) fn has_captured_word(self) -> bool {
        (0..N).any(|counter| self.word(counter).load(Relaxed) < 0)
    }

    /// Under its lock.
    pub(super) fn is_captured(self) -> bool {
        self.metadata().is_captured.load(Relaxed) != 0
    }

    /// Says what is changed next. Under its lock, as all transfers.
    pub(super) fn begin_transfer(self, index: usize, way_id: u32) -> Transfer {
        let parity = self.word(index).load(Relaxed) & PARITY;
        let begun = 1 + (way_id << 8) + (index as u32) * 2 + parity as u32;
        self.metadata().transfer.store(begun, Release);
        Transfer { index, way_id, parity }
    }

    /// The transfer that was begun and not ended.
    pub(super) fn transfer(self) -> Option<Transfer> {
        let begun = self.metadata().transfer.load(Acquire).checked_sub(1)?;
        let (way_id, index) = (begun >> 8, begun as usize % 256 / 2);
        Some(Transfer { index, way_id, parity: i64::from(begun & 1) })
    }

    /// Whether it has been added.
    pub(super) fn is_done(self, transfer: Transfer) -> bool {
        self.word(transfer.index).load(Acquire) & PARITY != transfer.parity
    }

    /// Adds what is transferred, and marks that.
    pub(super) fn transfer_in(self, transfer: Transfer, n: i64) {
        let flip = PARITY - 2 * transfer.parity;
        self.word(transfer.index).fetch_add((n << VALUE_SHIFT).wrapping_add(flip), AcqRel);
    }

    pub(super) fn end_transfers(self) {
        self.metadata().transfer.store(0, Release);
    }

    pub(super) fn opens(self) -> u32 {
        self.metadata().opens.load(Relaxed)
    }

    /// Under its lock.
    pub(super) fn is_open(self) -> bool {
        !self.opens().is_multiple_of(2)
    }

    /// Whether it has been used so often that its next account would have the id of its first.
    pub(super) fn ids_exhausted(self) -> bool {
        self.opens() >= u32::MAX - 1
    }

    /// Under its lock.
    pub(super) fn toggle_open(self) {
        self.metadata().opens.store(self.opens().wrapping_add(1), Relaxed);
    }

    /// Under its lock.
    pub(super) fn way_count(self) -> u32 {
        self.metadata().way_count.load(Relaxed)
    }

    /// Under its lock.
    pub(super) fn set_way_count(self, way_count: u32) {
        self.metadata().way_count.store(way_count, Relaxed);
    }

    /// Makes all counters 0, of a record that nobody uses.
    pub(super) fn clear(self) {
        (0..N).for_each(|counter| self.word(counter).store(ZERO, Relaxed));
    }

    /// The key of the next free record, of one that is free.
    pub(super) fn link<'a>(self) -> &'a AtomicI64 {
        self.word(0)
    }
}

/// The bytes of a chunk, and what it is aligned to. Pages of it that hold no account are never touched.
pub(super) const CHUNK_BYTES: usize = if cfg!(thiscpu_model) { 4096 } else { 1024 * 1024 };

/// What a chunk begins with.
#[repr(C, align(64))]
pub(super) struct Chunk<const N: usize> {
    /// As `Arc::as_ptr` has it, whose count each account shares.
    pub(super) ledger: *const LedgerCore<N>,
    /// Where the ledger's keys are in the lanes, in the form that sections take; see [`crate::gate`]. Never changed:
    /// where there was no memory for lanes, the chunk's accounts do without.
    pub(super) cache: usize,
    pub(super) is_signed: bool,
    /// The number of the first record.
    pub(super) first: u32,
    /// The chunk that was made next.
    pub(super) next: AtomicUsize,
}

impl<const N: usize> Chunk<N> {
    /// A whole number of lines.
    pub(super) const RECORDS: usize = {
        let fit = (CHUNK_BYTES - size_of::<Self>())
            / (size_of::<AtomicI64>() * N + size_of::<Metadata>());
        fit - fit % 8
    };
    const ROW_BYTES: usize = Self::RECORDS * size_of::<AtomicI64>();
    const METADATA_AT: usize = size_of::<Self>() + N * Self::ROW_BYTES;

    /// Record `index` of this chunk.
    pub(super) fn record(&self, index: usize) -> Record<N> {
        assert!(index < Self::RECORDS);
        let first = std::ptr::from_ref(self) as usize + size_of::<Self>();
        // SAFETY: the chunk's memory goes on that far; it began as zeros, which is a record.
        unsafe { Record::of_key((first + index * size_of::<AtomicI64>()) as u64) }
    }
}
