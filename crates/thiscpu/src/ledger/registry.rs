//! The registry of accounts: chunks of records, and how accounts are opened and closed.

use std::sync::Arc;

use super::cache;
use super::record::{CHUNK_BYTES, Chunk, Record};
use super::room::Room;

use super::core::LedgerCore;
use crate::gate::ITEM_ALIGN;
use crate::lanes::{region, table::READY_BIT};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU32, AtomicUsize,
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

    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk<N>> {
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
        // Acquire: pairs with the Release in `take_in`; the chunks of these records are visible.
        self.records.load(Acquire) as usize
    }

    /// Returns all records in use, and free ones.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<N>> {
        self.chunks().flat_map(Self::used_records)
    }

    /// Opens an account whose counters are 0. Waits for the first half of a `snapshot_all`.
    pub(super) fn open(self: &Arc<Self>) -> Record<N> {
        self.recover_after_fork();
        let _opening = self.registry.lock();
        self.alloc_cache();
        let record = self.take_record();
        let _guard = record.lock().lock();
        record.clear();
        record.handles().store(1, Relaxed);
        record.toggle_open();
        // Relaxed: nothing is published with the number.
        self.open.fetch_add(1, Relaxed);
        record
    }

    /// Returns the newest chunk. The caller holds the registry's lock.
    fn last(&self) -> Option<&Chunk<N>> {
        // SAFETY: the pointer is null or that of a chunk of this ledger. Chunks stay mapped while
        // the ledger lives, and `self` borrows it.
        unsafe { (self.last.load(Relaxed) as *const Chunk<N>).as_ref() }
    }

    /// Maps another chunk. The caller holds the registry's lock.
    pub(super) fn add_chunk(self: &Arc<Self>) -> &Chunk<N> {
        let first = self.last().map_or(0, |last| last.first + Chunk::<N>::RECORDS as u32);
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
            room: Room::default(),
            opens_before: AtomicU32::new(0),
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
        // Until the lock is free: another thread may return the pages of a record that is free.
        let visitor = self.visit();
        let guard = self.lock_account(record);
        self.end_capture_of_closed(record);
        record.toggle_open();
        if record.way_count() == 0 {
            self.push_free(record);
        } else {
            self.discard_ways(record);
        }
        drop(guard);
        drop(visitor);
        // AcqRel: as for a reference count.
        self.open.fetch_add(1_usize.wrapping_neg(), AcqRel);
        // The chunk that this account may have emptied, and one that another close had to leave.
        self.return_empty_chunks(2);
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
