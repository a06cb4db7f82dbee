//! The records that can be opened, and the pages of chunks without an open account.
//!
//! A chunk with such records is in the list of chunks with *room*, and each chunk lists its free
//! records. When a chunk's last account is closed and another chunk is empty too, the pages of one
//! return to the system. All of its records are then as they were before their first use, except
//! that the chunk remembers how often they were opened, for the ids of later accounts.
//!
//! No thread may access a record in the meantime. Handles lead to open accounts only. Threads that
//! open accounts, or take a snapshot of all, hold a lock. The others find a record by its key in a
//! lane. They count as *visitors* from before they load the key until they have left the record.
//! A closed account is in no lane. So a thread that finds no visitor knows that none can come.

use std::sync::Arc;

use super::core::LedgerCore;
use super::record::{CHUNK_BYTES, Chunk, Record};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence as memory_fence,
};
use crate::sys::machine::Machine as _;

/// A thread that may access records without a handle, while this lives.
pub(super) struct Visitor<'a>(&'a AtomicU32);

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        // Release: pairs with the load in `return_empty_chunks`; the visits come before.
        self.0.fetch_add(1_u32.wrapping_neg(), Release);
    }
}

impl<const N: usize> LedgerCore<N> {
    /// Counts this thread as a visitor. It loads keys from lanes after that.
    pub(super) fn visit(&self) -> Visitor<'_> {
        self.visitors.fetch_add(1, SeqCst);
        // Pairs with the fence in `return_empty_chunks`: either that finds this visitor, or this
        // thread finds that the accounts of the chunk are in no lane.
        memory_fence(SeqCst);
        Visitor(&self.visitors)
    }

    /// Returns the used records of a chunk.
    pub(super) fn used_records(chunk: &Chunk<N>) -> impl Iterator<Item = Record<N>> {
        // Acquire: pairs with the Release in `take_in`.
        (0..chunk.room.fresh.load(Acquire) as usize).map(|index| chunk.record(index))
    }

    /// Takes a record that is not in use. The caller holds the registry's lock.
    pub(super) fn take_record(self: &Arc<Self>) -> Record<N> {
        let _guard = self.free_lock.lock();
        loop {
            let Some(chunk) = self.first_with_room() else {
                self.list(self.add_chunk());
                continue;
            };
            if let Some(record) = self.take_in(chunk) {
                return record;
            }
            // In this order: a child that was forked in between forgets the chunk's room.
            self.with_room.store(chunk.room.next.load(Relaxed), Relaxed);
            chunk.room.is_listed.store(false, Relaxed);
        }
    }

    fn first_with_room(&self) -> Option<&Chunk<N>> {
        // SAFETY: the pointer is null or that of a chunk of this ledger. Chunks stay mapped while
        // the ledger lives, and `self` borrows it.
        unsafe { (self.with_room.load(Relaxed) as *const Chunk<N>).as_ref() }
    }

    /// Enters a chunk into the list of chunks with room, unless it is there.
    fn list(&self, chunk: &Chunk<N>) {
        if chunk.room.is_listed.load(Relaxed) {
            return;
        }
        // First: a child that was forked in between must not list it twice.
        chunk.room.is_listed.store(true, Relaxed);
        chunk.room.next.store(self.with_room.load(Relaxed), Relaxed);
        self.with_room.store(core::ptr::from_ref(chunk) as usize, Relaxed);
    }

    fn take_in(&self, chunk: &Chunk<N>) -> Option<Record<N>> {
        let room = &chunk.room;
        let (key, fresh) = (room.free.load(Relaxed) as u64, room.fresh.load(Relaxed));
        if key == 0 && fresh as usize == Chunk::<N>::RECORDS {
            return None;
        }
        if chunk.is_empty() {
            self.change_empty_chunks(-1);
        }
        // Counted before it is taken, so that a child never counts too few.
        room.open.store(room.open.load(Relaxed) + 1, Relaxed);
        if key != 0 {
            // SAFETY: the list holds keys of records of this ledger, which `self` borrows.
            let record = unsafe { Record::<N>::of_key(key) };
            room.free.store(record.link().load(Relaxed) as usize, Relaxed);
            return Some(record);
        }
        let number = chunk.first.checked_add(fresh + 1).expect("fewer than 2^32 accounts");
        // Release, twice: pairs with the Acquire in `count` and `used_records`. A thread that sees
        // the record sees its chunk.
        self.records.store(self.records.load(Relaxed).max(number), Release);
        room.fresh.store(fresh + 1, Release);
        Some(chunk.record(fresh as usize))
    }

    /// Adds a record to the free ones. The caller holds the account's lock.
    ///
    /// No lane holds the record's key, and no handle leads to the record.
    pub(super) fn push_free(&self, record: Record<N>) {
        if record.ids_exhausted() {
            return;
        }
        let _guard = self.free_lock.lock();
        let chunk = record.chunk();
        let room = &chunk.room;
        room.opens.store(room.opens.load(Relaxed).max(record.opens()), Relaxed);
        record.link().store(room.free.load(Relaxed) as i64, Relaxed);
        room.free.store(record.key() as usize, Relaxed);
        self.list(chunk);
        room.open.store(room.open.load(Relaxed) - 1, Relaxed);
        if chunk.is_empty() {
            self.change_empty_chunks(1);
        }
    }

    fn change_empty_chunks(&self, n: isize) {
        // Relaxed: only holders of the lock store it, and others take it for an estimate.
        let count = self.empty_chunks.load(Relaxed).wrapping_add_signed(n);
        self.empty_chunks.store(count, Relaxed);
    }

    /// Returns the pages of empty chunks to the system, except those of one.
    ///
    /// Does nothing while other threads need the records. The caller holds no lock.
    pub(super) fn return_empty_chunks(&self) {
        if self.empty_chunks.load(Relaxed) < 2 {
            return;
        }
        let Some(_opening) = self.registry.try_lock() else { return };
        let Some(_snapshot) = self.snapshot_lock.try_lock() else { return };
        let _guard = self.free_lock.lock();
        // Pairs with the fence in `visit`.
        memory_fence(SeqCst);
        // Acquire: pairs with the Release in the drop of a visitor.
        if self.visitors.load(Acquire) != 0 {
            return;
        }
        for chunk in self.chunks().filter(|chunk| chunk.is_empty()) {
            if self.empty_chunks.load(Relaxed) < 2 {
                break;
            }
            self.return_pages(chunk);
        }
    }

    /// Makes all records of an empty chunk unused, and returns their pages to the system.
    ///
    /// The caller holds the lock, and no other thread accesses the records.
    fn return_pages(&self, chunk: &Chunk<N>) {
        let room = &chunk.room;
        let opens = room.opens.load(Relaxed).next_multiple_of(2);
        let opens_before = chunk.opens_before.load(Relaxed) + opens;
        if opens_before >= u32::MAX / 4 {
            // Some records will soon have had all ids.
            return;
        }
        // First, so that a child that was forked in between gives no id twice. All steps leave a
        // usable chunk, also if the system does not take the pages.
        chunk.opens_before.store(opens_before, Relaxed);
        room.free.store(0, Relaxed);
        room.opens.store(0, Relaxed);
        room.fresh.store(0, Relaxed);
        self.change_empty_chunks(-1);
        // The first page has the header.
        let page = Host::page_bytes();
        let first = core::ptr::from_ref(chunk) as usize + page;
        // SAFETY: the chunk is memory from `Host::map`. None of its records is in use, and a record
        // that is all zeros is an unused one.
        unsafe { Host::discard(first, CHUNK_BYTES - page) };
    }
}

impl<const N: usize> Chunk<N> {
    /// Returns whether no account is open, but records have pages.
    fn is_empty(&self) -> bool {
        self.room.open.load(Relaxed) == 0 && self.room.fresh.load(Relaxed) > 0
    }
}
