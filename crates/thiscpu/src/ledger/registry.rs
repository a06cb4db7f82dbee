//! The registry of accounts: chunks of records, and the list of free records.

use std::sync::Arc;

use super::cache;
use super::record::{CHUNK_BYTES, Chunk, Record};

use super::core::LedgerCore;
use crate::gate::ITEM_ALIGN;
use crate::lanes::{region, table::READY_BIT};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::machine::Machine as _;
use crate::sys::panic_reason::PanicReason;
use crate::sys::startup;
use crate::tier::Tier;

/// The value of `Chunk::cache` if the ledger has no cache in lanes.
const NO_CACHE: usize = 0;

impl<const N: usize> LedgerCore<N> {
    /// Allocates the cache in the lanes, if sections can use it.
    fn alloc_cache(&self) {
        if self.item().is_some() || startup::tier_or_panic() == Tier::Atomic {
            return;
        }
        let item = region::lock().allocate_if_possible(cache::bytes(N), 2 * ITEM_ALIGN);
        if let Some(item) = item {
            // Release: pairs with the Acquire in `item`.
            self.item.store(item, Release);
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk<N>> {
        // Acquire, here and below: pairs with the Release in `add_chunk`; the header is visible.
        let mut next = self.first.load(Acquire);
        core::iter::from_fn(move || {
            // SAFETY: the pointer is null or that of a chunk of this ledger. Chunks stay mapped
            // while the ledger lives, and `self` borrows it.
            let chunk = unsafe { (next as *const Chunk<N>).as_ref() }?;
            next = chunk.next.load(Acquire);
            Some(chunk)
        })
    }

    /// Returns how many records were ever in use.
    pub(super) fn count(&self) -> usize {
        // Acquire: pairs with the Release in `fresh`; the chunks of these records are visible.
        self.records.load(Acquire) as usize
    }

    /// Returns all records that were ever in use.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<N>> {
        let all = |chunk| (0..Chunk::<N>::RECORDS).map(move |index| Chunk::record(chunk, index));
        self.chunks().flat_map(all).take(self.count())
    }

    /// Opens an account whose counters are 0. Waits for the first half of a `snapshot_all`.
    pub(super) fn open(self: &Arc<Self>) -> Record<N> {
        self.recover_after_fork();
        let _opening = self.registry.lock();
        self.alloc_cache();
        let record = self.pop_free().unwrap_or_else(|| self.fresh());
        let _guard = record.lock().lock();
        record.clear();
        record.handles().store(1, Relaxed);
        record.toggle_open();
        // Relaxed: nothing is published with the number.
        self.open.fetch_add(1, Relaxed);
        record
    }

    fn pop_free(&self) -> Option<Record<N>> {
        let _guard = self.free_lock.lock();
        let key = self.free.load(Relaxed) as u64;
        // SAFETY: the list holds keys of records of this ledger, which `self` borrows.
        let record = (key != 0).then(|| unsafe { Record::<N>::of_key(key) })?;
        self.free.store(record.link().load(Relaxed) as usize, Relaxed);
        Some(record)
    }

    /// Adds a record to the free list. The caller holds the account's lock.
    ///
    /// No lane holds the record's key, and no handle leads to the record.
    pub(super) fn push_free(&self, record: Record<N>) {
        if record.ids_exhausted() {
            return;
        }
        let _guard = self.free_lock.lock();
        record.link().store(self.free.load(Relaxed) as i64, Relaxed);
        self.free.store(record.key() as usize, Relaxed);
    }

    /// Returns a record that was never used. The caller holds the registry's lock.
    fn fresh(self: &Arc<Self>) -> Record<N> {
        let number = self.records.load(Relaxed);
        let index = number as usize % Chunk::<N>::RECORDS;
        // A fork may have left a new chunk of which no record was used.
        let last = self.last().filter(|last| index > 0 || last.first == number);
        let last = last.unwrap_or_else(|| self.add_chunk(number));
        // Release: pairs with the Acquire in `count`. A thread that sees the number sees the chunk.
        self.records.store(number.checked_add(1).expect("fewer than 2^32 accounts"), Release);
        last.record(index)
    }

    /// Returns the newest chunk. The caller holds the registry's lock.
    fn last(&self) -> Option<&Chunk<N>> {
        // SAFETY: the pointer is null or that of a chunk of this ledger. Chunks stay mapped while
        // the ledger lives, and `self` borrows it.
        unsafe { (self.last.load(Relaxed) as *const Chunk<N>).as_ref() }
    }

    /// Maps another chunk. The caller holds the registry's lock.
    fn add_chunk(self: &Arc<Self>, first: u32) -> &Chunk<N> {
        let memory = Host::map(CHUNK_BYTES).unwrap_or_else(|error| {
            PanicReason::NoMemory.panic(format_args!(
                "thiscpu: no memory for another {} accounts: error {error}",
                Chunk::<N>::RECORDS
            ))
        });
        let head = Chunk {
            ledger: Arc::as_ptr(self),
            cache: self.item().map_or(NO_CACHE, |item| item + cache::HEADER_BYTES + READY_BIT),
            is_signed: self.is_signed,
            first,
            next: AtomicUsize::new(0),
        };
        // SAFETY: the memory was just mapped, is large enough, and is aligned to `CHUNK_BYTES`.
        unsafe { (memory as *mut Chunk<N>).write(head) };
        let link = self.last().map_or(&self.first, |last| &last.next);
        // Release: pairs with the Acquire loads in `chunks`.
        link.store(memory, Release);
        self.last.store(memory, Relaxed);
        // SAFETY: the header was just written. Chunks stay mapped while the ledger lives, and
        // `self` borrows it.
        unsafe { &*(memory as *const Chunk<N>) }
    }

    /// Returns the address in lane 0 of the set that may hold an account.
    pub(super) fn set_of(&self, record: Record<N>) -> usize {
        // The address that sections compute. It is not 0 for an account that a section found in a
        // lane.
        let keys = record.chunk().cache & !READY_BIT;
        keys + cache::set_of(record.key(), N)
    }

    /// Closes an account whose last handle was dropped.
    pub(super) fn close(&self, record: Record<N>) {
        let guard = self.lock_account(record);
        self.discard_capture(record);
        record.toggle_open();
        if record.way_count() == 0 {
            self.push_free(record);
        }
        drop(guard);
        // AcqRel: as for a reference count.
        self.open.fetch_add(1_usize.wrapping_neg(), AcqRel);
    }
}

impl<const N: usize> Drop for LedgerCore<N> {
    fn drop(&mut self) {
        if let Some(item) = self.item() {
            region::free(item, cache::bytes(N));
        }
        let mut next = self.first.load(Relaxed);
        while next != 0 {
            let chunk = next as *mut Chunk<N>;
            // SAFETY: this is a chunk of this ledger, which is being dropped, so no handle leads to
            // it any more.
            next = unsafe { (*chunk).next.load(Relaxed) };
            // SAFETY: nothing refers to the chunk any more, and it was mapped with this size.
            unsafe { Host::unmap(chunk as usize, CHUNK_BYTES) };
        }
    }
}
