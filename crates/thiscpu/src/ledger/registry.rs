//! Which accounts there are: chunks of records, and a list of those that are free.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use super::cache::{self, LEAVING, Way};
use super::record::{CHUNK_BYTES, Chunk, Record};
use super::{Log, Shared};
use crate::lanes::{region, table};
use crate::quiesce::ITEM_ALIGN;
use crate::sys::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::lock::Lock;
use crate::sys::machine::{Here, Machine as _};
use crate::sys::tier::{self, Tier};

/// Spreads numbers that follow each other: 2^32 divided by the golden ratio.
const SPREAD: u32 = 0x9e37_79b9;

fn chunk_layout() -> Layout {
    Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("a power of two")
}

impl<const N: usize> Shared<N> {
    pub(super) fn new(batch: u64, is_signed: bool) -> Shared<N> {
        const { assert!(N >= 1 && N <= super::COUNTERS_MAX, "a ledger has 1 to 64 counters") };
        Shared {
            registry: Lock::new(),
            first: AtomicUsize::new(0),
            last: AtomicUsize::new(0),
            chunks: AtomicU32::new(0),
            free_lock: Lock::new(),
            free: AtomicUsize::new(0),
            item: AtomicUsize::new(0),
            healed: AtomicU32::new(Here::generation()),
            open: AtomicUsize::new(0),
            moves: Lock::new(),
            log: Log::new(),
            window: window(batch),
            is_signed,
        }
    }

    /// The cache in lane 0, if there is one: not in the atomic tier, nor where no memory could be had.
    pub(super) fn item(&self) -> Option<usize> {
        match self.item.load(Acquire) {
            0 => None,
            item => Some(item),
        }
    }

    /// Takes memory in the lanes, if there are sections to use it.
    fn take_item(&self) {
        if self.item().is_none() && tier::expect() != Tier::Atomic {
            let item = region::lock().allocate(cache::bytes(N), 2 * ITEM_ALIGN);
            // Release: pairs with the Acquire in `item`.
            self.item.store(item.unwrap_or(0), Release);
        }
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk<N>> {
        let mut next = self.first.load(Acquire);
        core::iter::from_fn(move || {
            // SAFETY: chunks live as long as the ledger.
            let chunk = unsafe { (next as *const Chunk<N>).as_ref() }?;
            next = chunk.next.load(Acquire);
            Some(chunk)
        })
    }

    /// A record that nobody uses. Waits for a report.
    pub(super) fn open(&self) -> &Record<N> {
        let _opening = self.registry.lock();
        self.take_item();
        let record = self.pop_free().unwrap_or_else(|| {
            self.add_chunk();
            self.pop_free().expect("a chunk has records")
        });
        record.clear();
        record.handles.store(1, Relaxed);
        record.count_use();
        self.reopen(record);
        // Relaxed: nothing rests on it.
        self.open.fetch_add(1, Relaxed);
        record
    }

    fn pop_free(&self) -> Option<&Record<N>> {
        let _guard = self.free_lock.lock();
        // SAFETY: the list holds records of this ledger.
        let record = unsafe { (self.free.load(Relaxed) as *const Record<N>).as_ref() }?;
        self.free.store(record.link().load(Relaxed) as usize, Relaxed);
        Some(record)
    }

    /// Puts a record into the list that no lane names and no handle leads to.
    pub(super) fn push_free(&self, record: &Record<N>) {
        let _guard = self.free_lock.lock();
        record.link().store(self.free.load(Relaxed) as i64, Relaxed);
        self.free.store(record.key() as usize, Relaxed);
    }

    /// Under the registry's lock.
    fn add_chunk(&self) {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(chunk_layout()) }.cast::<Chunk<N>>();
        let Some(new) = NonNull::new(memory) else { handle_alloc_error(chunk_layout()) };
        let made = self.chunks.load(Relaxed);
        let head = Chunk {
            ledger: NonNull::from(self),
            window: self.window,
            is_signed: self.is_signed,
            first: made * Chunk::<N>::RECORDS as u32,
            next: AtomicUsize::new(0),
        };
        // SAFETY: fresh memory, large enough and aligned.
        unsafe { new.write(head) };
        // SAFETY: as above; it lives as long as this ledger.
        let chunk = unsafe { new.as_ref() };
        // The first record is handed out first.
        (0..Chunk::<N>::RECORDS).rev().for_each(|index| self.push_free(chunk.record(index)));
        self.chunks.store(made + 1, Relaxed);
        let address = new.as_ptr() as usize;
        // SAFETY: chunks live as long as the ledger.
        match unsafe { (self.last.load(Relaxed) as *const Chunk<N>).as_ref() } {
            None => self.first.store(address, Release),
            // Release, and above: pairs with the Acquire in `chunks`.
            Some(last) => last.next.store(address, Release),
        }
        self.last.store(address, Relaxed);
    }

    /// Lets sections charge an open account, if there is a cache. Under its lock.
    pub(super) fn reopen(&self, record: &Record<N>) {
        let gate = match self.item() {
            Some(_) => self.set_of(record) | table::BIAS,
            None => CLOSED,
        };
        // Release: what was done to the account's ways is there for whoever finds it open; sections load
        // through this word.
        record.gate.store(gate, Release);
    }

    /// Refuses sections. Under the account's lock; those under way are still to be fenced.
    pub(super) fn close_gate(&self, record: &Record<N>) {
        record.gate.store(CLOSED, Release);
    }

    /// The address in lane 0 of the set that an account is cached in.
    pub(super) fn set_of(&self, record: &Record<N>) -> usize {
        let number = record.chunk().number(record).wrapping_mul(SPREAD);
        let set = number as usize >> (32 - cache::SETS.trailing_zeros());
        cache::set_at(self.item.load(Relaxed), set, N)
    }

    /// The last handle has gone.
    pub(super) fn close(&self, record: &Record<N>) {
        self.heal();
        let guard = record.lock.lock();
        record.count_use();
        self.close_gate(record);
        if record.blocks() == 0 {
            self.push_free(record);
        }
        drop(guard);
        // AcqRel: as a count of references is.
        self.open.fetch_add(1_usize.wrapping_neg(), AcqRel);
    }

    /// Ends what a fork cut in two, before anything rests on what is in lanes.
    pub(super) fn heal(&self) {
        let generation = Here::generation();
        // Acquire: pairs with the Release below.
        if self.healed.load(Acquire) == generation {
            return;
        }
        let _healing = self.registry.lock();
        if self.healed.load(Acquire) == generation {
            return;
        }
        self.log.end::<N>();
        if let Some(item) = self.item() {
            for set in 0..cache::SETS {
                Way::in_all_lanes(cache::set_at(item, set, N)).for_each(|way| self.heal_way(way));
            }
        }
        self.healed.store(generation, Release);
    }

    fn heal_way(&self, way: Way) {
        let key = way.key();
        if key & LEAVING == 0 {
            return;
        }
        // SAFETY: a key leads to a record of this ledger.
        let record = unsafe { Record::<N>::of_key(key) };
        let _guard = record.lock.lock();
        if let Some(transfer) = record.transfer().filter(|&transfer| record.is_done(transfer)) {
            way.counter(transfer.index).store(0, Relaxed);
        }
        self.fold(record, way);
        self.vacate(record, way);
    }
}

/// A gate that leads nowhere.
const CLOSED: usize = table::BIAS | 1;

/// Counts from `-batch` to `batch`, about, in the form that sections check.
fn window(batch: u64) -> u64 {
    let half = batch.clamp(64, 1 << 40).next_power_of_two();
    let shift = u64::from(half.trailing_zeros() + 1);
    half.wrapping_neg() | shift
}

impl<const N: usize> Drop for Shared<N> {
    fn drop(&mut self) {
        if let Some(item) = self.item() {
            region::lock().free(item, cache::bytes(N));
        }
        let mut next = self.first.load(Relaxed);
        while next != 0 {
            let chunk = next as *mut Chunk<N>;
            // SAFETY: a chunk of this ledger, to which no handle leads any more.
            next = unsafe { (*chunk).next.load(Relaxed) };
            // SAFETY: as above; it was allocated with this layout.
            unsafe { dealloc(chunk.cast(), chunk_layout()) };
        }
    }
}
