//! An account's record, and the chunks that records live in.
//!
//! A record is never given back to the system while its ledger lives, so a key in a lane always leads to one.
//!
//! Each counter is a word: bits 1 and up are its value, less what is in lanes. Bit 0 changes with each
//! transfer from a lane or between accounts, in the same addition, so that a child forked in the middle of a transfer can
//! tell whether that was done.

use core::ptr::NonNull;

use super::Shared;
use crate::sys::atomic::{
    AtomicI64, AtomicU16, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::lock::Lock;

/// One account. In cache lines of its own; for four counters it is one.
#[repr(C, align(64))]
pub(super) struct Record<const N: usize> {
    /// Leads sections to the account's set. First, because a section takes its address for the key.
    pub(super) gate: AtomicUsize,
    /// Held by whoever needs the account to hold still, or charges it without a section.
    pub(super) lock: Lock,
    pub(super) handles: AtomicU32,
    /// The transfer under way; see [`Transfer`].
    folding: AtomicU32,
    /// How often it was opened and closed: odd while it is open.
    uses: AtomicU32,
    /// In how many ways of lanes it is. Changed under the lock.
    blocks: AtomicU16,
    /// About how many charges found it in no lane, since somebody tried to mend that.
    pub(super) misses: AtomicU16,
    words: [AtomicI64; N],
}

/// A transfer to one counter: which, and what bit 0 was before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) index: usize,
    parity: i64,
}

const VALUE_SHIFT: u32 = 1;
const PARITY: i64 = 1;

impl<const N: usize> Record<N> {
    /// What sections take for the account's key.
    pub(super) fn key(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// From the start of a record to counter `index`.
    pub(super) const fn word_at(index: usize) -> usize {
        core::mem::offset_of!(Self, words) + 8 * index
    }

    /// What is added to a word for `n`.
    pub(super) const fn scaled(n: i64) -> i64 {
        n.wrapping_shl(VALUE_SHIFT)
    }

    /// A counter's value, less what is in lanes. Acquire: whoever charged under the lock, or folded.
    pub(super) fn value(&self, index: usize) -> i64 {
        self.words[index].load(Acquire) >> VALUE_SHIFT
    }

    /// Adds to a counter. Wraps.
    pub(super) fn add(&self, index: usize, n: i64) {
        self.words[index].fetch_add(Self::scaled(n), AcqRel);
    }

    /// Says which counter is changed next, by its number and its bit 0.
    pub(super) fn begin_transfer(&self, index: usize) -> Transfer {
        let parity = self.words[index].load(Relaxed) & PARITY;
        self.folding.store(1 + (index as u32) * 2 + parity as u32, Release);
        Transfer { index, parity }
    }

    /// The transfer that was begun and not ended.
    pub(super) fn transfer(&self) -> Option<Transfer> {
        let begun = self.folding.load(Acquire).checked_sub(1)?;
        Some(Transfer { index: begun as usize / 2, parity: i64::from(begun & 1) })
    }

    /// Whether it has been added.
    pub(super) fn is_done(&self, transfer: Transfer) -> bool {
        self.words[transfer.index].load(Acquire) & PARITY != transfer.parity
    }

    /// Adds what is transferred, and marks that.
    pub(super) fn transfer_in(&self, transfer: Transfer, n: i64) {
        let flip = PARITY - 2 * transfer.parity;
        self.words[transfer.index].fetch_add(Self::scaled(n).wrapping_add(flip), AcqRel);
    }

    pub(super) fn end_transfers(&self) {
        self.folding.store(0, Release);
    }

    pub(super) fn uses(&self) -> u32 {
        self.uses.load(Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.uses().is_multiple_of(2)
    }

    /// Under its lock, or before anybody has it.
    pub(super) fn count_use(&self) {
        self.uses.store(self.uses().wrapping_add(1), Relaxed);
    }

    /// Under its lock.
    pub(super) fn blocks(&self) -> u16 {
        self.blocks.load(Relaxed)
    }

    /// Under its lock.
    pub(super) fn set_blocks(&self, blocks: u16) {
        self.blocks.store(blocks, Relaxed);
    }

    /// Makes all counters 0, of a record that nobody uses.
    pub(super) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.misses.store(0, Relaxed);
    }

    /// The link of a record that is in the list of free ones.
    pub(super) fn link(&self) -> &AtomicI64 {
        &self.words[0]
    }

    pub(super) fn chunk(&self) -> &Chunk<N> {
        let chunk = core::ptr::from_ref(self) as usize & !(CHUNK_BYTES - 1);
        // SAFETY: every record is in a chunk, which is aligned to its size.
        unsafe { &*(chunk as *const Chunk<N>) }
    }
}

/// The bytes of a chunk, and what it is aligned to.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;

/// What a chunk begins with; records follow.
#[repr(C, align(64))]
pub(super) struct Chunk<const N: usize> {
    pub(super) ledger: NonNull<Shared<N>>,
    /// How far a way's counters may go; see `counter::window` for the form.
    pub(super) window: u64,
    pub(super) is_signed: bool,
    /// The number of the first record.
    pub(super) first: u32,
    /// The chunk that was made next.
    pub(super) next: AtomicUsize,
}

impl<const N: usize> Chunk<N> {
    pub(super) const RECORDS: usize = (CHUNK_BYTES - size_of::<Self>()) / size_of::<Record<N>>();

    /// Record `index` of this chunk.
    pub(super) fn record(&self, index: usize) -> &Record<N> {
        assert!(index < Self::RECORDS);
        let records = core::ptr::from_ref(self) as usize + size_of::<Self>();
        // SAFETY: the chunk's memory goes on that far; it began as zeros, which is a record.
        unsafe { &*((records + index * size_of::<Record<N>>()) as *const Record<N>) }
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record<N>> {
        (0..Self::RECORDS).map(|index| self.record(index))
    }

    /// The number of a record of this chunk, which no other record of the ledger has.
    pub(super) fn number(&self, record: &Record<N>) -> u32 {
        let records = core::ptr::from_ref(self) as usize + size_of::<Self>();
        let index = (core::ptr::from_ref(record) as usize - records) / size_of::<Record<N>>();
        self.first + index as u32
    }
}
