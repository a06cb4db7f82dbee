//! An account's record, and the chunks that hold records.
//!
//! ```text
//! | header : 64 | counter 0 of each record | counter 1 of each | ... | metadata of each record |
//! ```
//!
//! Each counter has its own row. So a charge that finds its account in no lane touches one cache
//! line, which eight accounts share, and nothing else of the account.
//!
//! The *key* of a record is the address of its counter 0. A record's memory is not unmapped while
//! the ledger lives, so a key in a lane always leads to a record.
//!
//! Each counter is a word:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | parity: flips with each transfer from a lane or between accounts |
//! | 1 to 62 | the value, without the charges that lanes hold, plus 2^61 |
//! | 63 | captured: the value was written down for an exact read |
//!
//! The parity changes in the same addition as the value. So a child that was forked in the middle
//! of a transfer can tell whether the addition happened.
//!
//! A charge is one addition, whatever bit 63 is. If the bit is set, the charge came after the
//! capture, and the charging thread must take the account's lock before it returns. The bit is the
//! sign, so a charge learns of it from the flags of the addition, without a load of the sum.

use std::fmt;
use std::ptr::NonNull;

use super::core::LedgerCore;
use super::room::Room;
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

/// An account's record, by its key: the address of its counter 0.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Record<const N: usize>(NonNull<AtomicI64>);

/// The id of an account, which no other account of its ledger ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(u64);

impl AccountId {
    /// Returns the id as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record except for its counters.
#[repr(C)]
struct Metadata {
    /// Held by a thread that reads the account exactly, or that moves it into or out of lanes.
    lock: Lock,
    handles: AtomicU32,
    /// The transfer in progress, encoded as in `begin_transfer`; 0 if there is none.
    transfer: AtomicU32,
    /// How often the account was opened or closed: odd while it is open.
    opens: AtomicU32,
    /// The number of ways, in all lanes, that hold the account.
    way_count: AtomicU32,
    /// Whether the account is captured; signs of words say only that charges take the lock.
    is_captured: AtomicU32,
}

/// A transfer into or out of one counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) index: usize,
    /// The source: a way, or [`ANOTHER_ACCOUNT`].
    pub(super) way_id: u32,
    /// The parity before the transfer.
    parity: i64,
}

/// Returns `value` wrapped to 62 bits.
pub(super) fn wrapped(value: i64) -> i64 {
    (value << 2) >> 2
}

fn value(word: i64) -> i64 {
    ((word & !CAPTURED) - ZERO) >> VALUE_SHIFT
}

/// The source of a transfer between accounts, instead of a way.
pub(super) const ANOTHER_ACCOUNT: u32 = 0;

impl<const N: usize> Record<N> {
    /// Returns the record of a key.
    ///
    /// # Safety
    ///
    /// The key is that of a record, and the record's ledger outlives the result.
    pub(super) unsafe fn of_key(key: u64) -> Record<N> {
        // SAFETY: the caller guarantees that the key is a record's address, which is not 0.
        Record(unsafe { NonNull::new_unchecked(key as *mut AtomicI64) })
    }

    /// Returns the key, which sections look for in a lane.
    #[inline(always)]
    pub(super) fn key(self) -> u64 {
        self.0.as_ptr() as u64
    }

    #[inline(always)]
    pub(super) fn chunk<'a>(self) -> &'a Chunk<N> {
        let chunk = self.key() as usize & !(CHUNK_BYTES - 1);
        // SAFETY: every record is in a chunk. Chunks are aligned to their size, and stay mapped
        // while the ledger lives.
        unsafe { &*(chunk as *const Chunk<N>) }
    }

    pub(super) fn ledger<'a>(self) -> &'a LedgerCore<N> {
        // SAFETY: the chunk holds the pointer that its ledger was created with. The ledger outlives
        // every record that a caller can name, since each open account owns a reference to it.
        unsafe { &*self.chunk().ledger }
    }

    pub(super) fn id(self) -> AccountId {
        let opens = self.chunk().opens_before.load(Relaxed) + self.opens();
        AccountId(u64::from(opens / 2) << 32 | u64::from(self.number()))
    }

    /// Returns the record's index in its chunk.
    fn index(self) -> usize {
        (self.key() as usize % CHUNK_BYTES - size_of::<Chunk<N>>()) / size_of::<AtomicI64>()
    }

    /// Returns the record's number, which no other record of the ledger has.
    pub(super) fn number(self) -> u32 {
        self.chunk().first + self.index() as u32
    }

    #[inline(always)]
    fn word<'a>(self, counter: usize) -> &'a AtomicI64 {
        debug_assert!(counter < N);
        let at = self.key() as usize + counter * Chunk::<N>::ROW_BYTES;
        // SAFETY: each counter has a row in the chunk, and this record's word is at the same place
        // in each row. Callers pass a counter below `N`.
        unsafe { &*(at as *const AtomicI64) }
    }

    fn metadata<'a>(self) -> &'a Metadata {
        let metadata = std::ptr::from_ref(self.chunk()) as usize + Chunk::<N>::METADATA_AT;
        // SAFETY: an array with a `Metadata` for each record follows the rows. The chunk began as
        // zeros, which is a valid `Metadata`.
        unsafe { &*((metadata + self.index() * size_of::<Metadata>()) as *const Metadata) }
    }

    pub(super) fn lock<'a>(self) -> &'a Lock {
        &self.metadata().lock
    }

    pub(super) fn handles<'a>(self) -> &'a AtomicU32 {
        &self.metadata().handles
    }

    /// Adds to the account's own word, and returns whether it was not captured.
    #[inline(always)]
    pub(super) fn charge_word(self, counter: usize, n: i64) -> bool {
        let n = n << VALUE_SHIFT;
        // AcqRel: an exact read that sees a later charge of this thread to another counter sees
        // this one.
        self.word(counter).fetch_add(n, AcqRel).wrapping_add(n) >= 0
    }

    /// Returns a counter's value, without the charges that lanes hold.
    ///
    /// Acquire: pairs with the release half of `charge_word` and `transfer_in`.
    pub(super) fn value(self, counter: usize) -> i64 {
        value(self.word(counter).load(Acquire))
    }

    /// Captures the words, each at an instant of its own, and returns their values.
    ///
    /// Charges after that take the lock. The caller holds the account's lock.
    pub(super) fn begin_capture(self) -> [i64; N] {
        self.metadata().is_captured.store(1, Relaxed);
        // AcqRel: pairs with the charges before and after it; those after it see the lock held.
        std::array::from_fn(|counter| value(self.word(counter).fetch_or(CAPTURED, AcqRel)))
    }

    /// Ends a capture, and clears signs left by a fork or overflow. The caller holds the lock.
    pub(super) fn end_capture(self) {
        // AcqRel: pairs with the charges before and after it.
        (0..N).for_each(|counter| _ = self.word(counter).fetch_and(!CAPTURED, AcqRel));
        self.metadata().is_captured.store(0, Relaxed);
    }

    /// Returns whether the sign of any word makes charges take the lock.
    pub(super) fn has_captured_word(self) -> bool {
        (0..N).any(|counter| self.word(counter).load(Relaxed) < 0)
    }

    /// Returns whether the account is captured. The caller holds the account's lock.
    pub(super) fn is_captured(self) -> bool {
        self.metadata().is_captured.load(Relaxed) != 0
    }

    /// Records the next change of a counter. Callers of all transfer functions hold the lock.
    pub(super) fn begin_transfer(self, index: usize, way_id: u32) -> Transfer {
        let parity = self.word(index).load(Relaxed) & PARITY;
        let begun = 1 + (way_id << 8) + (index as u32) * 2 + parity as u32;
        // Release: pairs with the Acquire in `transfer`. A child that finds the addition finds this
        // too, since the addition comes later.
        self.metadata().transfer.store(begun, Release);
        Transfer { index, way_id, parity }
    }

    /// Returns the transfer that has begun and has not ended.
    pub(super) fn transfer(self) -> Option<Transfer> {
        // Acquire: pairs with the Release in `begin_transfer`.
        let begun = self.metadata().transfer.load(Acquire).checked_sub(1)?;
        let (way_id, index) = (begun >> 8, begun as usize % 256 / 2);
        Some(Transfer { index, way_id, parity: i64::from(begun & 1) })
    }

    /// Returns whether the transfer's addition has happened.
    pub(super) fn is_done(self, transfer: Transfer) -> bool {
        // Acquire: pairs with the release half of `transfer_in`.
        self.word(transfer.index).load(Acquire) & PARITY != transfer.parity
    }

    /// Adds the transferred amount, and flips the parity.
    pub(super) fn transfer_in(self, transfer: Transfer, n: i64) {
        let flip = PARITY - 2 * transfer.parity;
        // AcqRel: pairs with the Acquire in `value`; comes after `begin_transfer` and before the
        // way is cleared, also for a child.
        self.word(transfer.index).fetch_add((n << VALUE_SHIFT).wrapping_add(flip), AcqRel);
    }

    pub(super) fn end_transfers(self) {
        // Release: the additions and the clearing of the ways come before it.
        self.metadata().transfer.store(0, Release);
    }

    pub(super) fn opens(self) -> u32 {
        self.metadata().opens.load(Relaxed)
    }

    /// Returns whether the account is open. The caller holds the account's lock.
    pub(super) fn is_open(self) -> bool {
        !self.opens().is_multiple_of(2)
    }

    /// Returns whether the next account of this record would repeat the id of its first.
    pub(super) fn ids_exhausted(self) -> bool {
        self.chunk().opens_before.load(Relaxed) + self.opens() >= u32::MAX / 2
    }

    /// Marks the account as open, or as closed if it was open. The caller holds its lock.
    pub(super) fn toggle_open(self) {
        self.metadata().opens.store(self.opens().wrapping_add(1), Relaxed);
    }

    /// Returns the number of ways that hold the account. The caller holds the account's lock.
    pub(super) fn way_count(self) -> u32 {
        self.metadata().way_count.load(Relaxed)
    }

    /// Sets the number of ways that hold the account. The caller holds the account's lock.
    pub(super) fn set_way_count(self, way_count: u32) {
        self.metadata().way_count.store(way_count, Relaxed);
    }

    /// Sets all counters of an unused record to 0.
    pub(super) fn clear(self) {
        (0..N).for_each(|counter| self.word(counter).store(ZERO, Relaxed));
    }

    /// Returns the word that links a free record to the next one, by key.
    pub(super) fn link<'a>(self) -> &'a AtomicI64 {
        self.word(0)
    }
}

/// The bytes of a chunk, and its alignment. Pages of it that hold no account stay untouched.
pub(super) const CHUNK_BYTES: usize = if cfg!(thiscpu_model) { 4096 } else { 1024 * 1024 };

/// The header of a chunk.
#[repr(C, align(64))]
pub(super) struct Chunk<const N: usize> {
    /// The pointer of `Arc::as_ptr`; each account owns a reference to it.
    pub(super) ledger: *const LedgerCore<N>,
    /// The address of the ledger's keys in lane 0, plus the bit that sections expect.
    ///
    /// See [`crate::gate`]. It never changes. If there was no memory for lanes, the accounts of
    /// this chunk never use any.
    pub(super) cache: usize,
    pub(super) is_signed: bool,
    /// The number of the first record.
    pub(super) first: u32,
    /// The next chunk in order of creation, or 0.
    pub(super) next: AtomicUsize,
    pub(super) room: Room,
    /// How often records were opened or closed before their pages returned, at most.
    ///
    /// An even number. It keeps the ids of later accounts apart from those of earlier ones.
    pub(super) opens_before: AtomicU32,
}

impl<const N: usize> Chunk<N> {
    /// The number of records, which fill whole cache lines.
    pub(super) const RECORDS: usize = {
        let fit = (CHUNK_BYTES - size_of::<Self>())
            / (size_of::<AtomicI64>() * N + size_of::<Metadata>());
        fit - fit % 8
    };
    const ROW_BYTES: usize = Self::RECORDS * size_of::<AtomicI64>();
    const METADATA_AT: usize = size_of::<Self>() + N * Self::ROW_BYTES;

    pub(super) fn record(&self, index: usize) -> Record<N> {
        assert!(index < Self::RECORDS);
        let first = std::ptr::from_ref(self) as usize + size_of::<Self>();
        // SAFETY: the chunk's memory continues that far, as the assertion checks. It began as
        // zeros, which is a valid record.
        unsafe { Record::of_key((first + index * size_of::<AtomicI64>()) as u64) }
    }
}
