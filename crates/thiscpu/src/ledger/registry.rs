//! Which accounts there are: chunks of records, and a list of those that are free.

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
use crate::sys::startup;
use crate::tier::Tier;

/// A cache that is in no lane.
const NO_CACHE: usize = 0;

/// The beginning of the panic message when there is no memory, by which callers in C are told.
pub(crate) const NO_MEMORY: &str = "thiscpu: no memory";

impl<const N: usize> LedgerCore<N> {
    /// Takes memory in the lanes, if there are sections to use it.
    fn take_item(&self) {
        if self.item().is_some() || startup::tier_or_panic() == Tier::Atomic {
            return;
        }
        if let Ok(item) = region::lock().allocate(cache::bytes(N), 2 * ITEM_ALIGN) {
            // Release: pairs with the Acquire in `item`.
            self.item.store(item, Release);
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk<N>> {
        let mut next = self.first.load(Acquire);
        core::iter::from_fn(move || {
            // SAFETY: chunks live as long as the ledger.
            let chunk = unsafe { (next as *const Chunk<N>).as_ref() }?;
            next = chunk.next.load(Acquire);
            Some(chunk)
        })
    }

    /// How many records have ever been in use.
    pub(super) fn count(&self) -> usize {
        self.records.load(Acquire) as usize
    }

    /// All of those.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<N>> {
        let all = |chunk| (0..Chunk::<N>::RECORDS).map(move |index| Chunk::record(chunk, index));
        self.chunks().flat_map(all).take(self.count())
    }

    /// An account whose counters are 0. Waits for the first part of a report.
    pub(super) fn open(self: &Arc<Self>) -> Record<N> {
        self.recover_after_fork();
        let _opening = self.registry.lock();
        self.take_item();
        let record = self.pop_free().unwrap_or_else(|| self.fresh());
        let _guard = record.lock().lock();
        record.clear();
        record.handles().store(1, Relaxed);
        record.toggle_open();
        // Relaxed: nothing rests on it.
        self.open.fetch_add(1, Relaxed);
        record
    }

    fn pop_free(&self) -> Option<Record<N>> {
        let _guard = self.free_lock.lock();
        let key = self.free.load(Relaxed) as u64;
        // SAFETY: the list holds records of this ledger.
        let record = (key != 0).then(|| unsafe { Record::<N>::of_key(key) })?;
        self.free.store(record.link().load(Relaxed) as usize, Relaxed);
        Some(record)
    }

    /// Puts a record into the list that no lane names and no handle leads to. Under its lock.
    pub(super) fn push_free(&self, record: Record<N>) {
        if record.ids_exhausted() {
            return;
        }
        let _guard = self.free_lock.lock();
        record.link().store(self.free.load(Relaxed) as i64, Relaxed);
        self.free.store(record.key() as usize, Relaxed);
    }

    /// A record that was never used. Under the registry's lock.
    fn fresh(self: &Arc<Self>) -> Record<N> {
        let number = self.records.load(Relaxed);
        let index = number as usize % Chunk::<N>::RECORDS;
        // A fork may have left a new chunk of which nothing is used.
        let last = self.last().filter(|last| index > 0 || last.first == number);
        let last = last.unwrap_or_else(|| self.add_chunk(number));
        // Release: pairs with the Acquire in `count`; the chunk is there.
        self.records.store(number.checked_add(1).expect("fewer than 2^32 accounts"), Release);
        last.record(index)
    }

    /// The newest chunk. Under the registry's lock.
    fn last(&self) -> Option<&Chunk<N>> {
        // SAFETY: chunks live as long as the ledger.
        unsafe { (self.last.load(Relaxed) as *const Chunk<N>).as_ref() }
    }

    /// Under the registry's lock.
    fn add_chunk(self: &Arc<Self>, first: u32) -> &Chunk<N> {
        let memory = Host::map(CHUNK_BYTES).unwrap_or_else(|error| {
            panic!("{NO_MEMORY} for another {} accounts: error {error}", Chunk::<N>::RECORDS)
        });
        let head = Chunk {
            ledger: Arc::as_ptr(self),
            cache: self.item().map_or(NO_CACHE, |item| item + cache::HEADER_BYTES + READY_BIT),
            is_signed: self.is_signed,
            first,
            next: AtomicUsize::new(0),
        };
        // SAFETY: fresh memory, large enough and aligned.
        unsafe { (memory as *mut Chunk<N>).write(head) };
        let link = self.last().map_or(&self.first, |last| &last.next);
        // Release: pairs with the Acquire in `chunks`.
        link.store(memory, Release);
        self.last.store(memory, Relaxed);
        // SAFETY: it is whole, and lives as long as the ledger.
        unsafe { &*(memory as *const Chunk<N>) }
    }

    /// The address in lane 0 of the set that an account is cached in.
    pub(super) fn set_of(&self, record: Record<N>) -> usize {
        // What sections load, and never 0 for whoever they have found there.
        let keys = record.chunk().cache & !READY_BIT;
        keys + cache::set_of(record.key(), N)
    }

    /// The last handle has gone.
    pub(super) fn close(&self, record: Record<N>) {
        let guard = self.lock_account(record);
        self.discard_capture(record);
        record.toggle_open();
        if record.way_count() == 0 {
            self.push_free(record);
        }
        drop(guard);
        // AcqRel: as a count of references is.
        self.open.fetch_add(1_usize.wrapping_neg(), AcqRel);
    }
}

impl<const N: usize> Drop for LedgerCore<N> {
    fn drop(&mut self) {
        if let Some(item) = self.item() {
            region::lock().free(item, cache::bytes(N));
        }
        let mut next = self.first.load(Relaxed);
        while next != 0 {
            let chunk = next as *mut Chunk<N>;
            // SAFETY: a chunk of this ledger, to which no handle leads any more.
            next = unsafe { (*chunk).next.load(Relaxed) };
            // SAFETY: as above; it was mapped with this size.
            unsafe { Host::unmap(chunk as usize, CHUNK_BYTES) };
        }
    }
}
