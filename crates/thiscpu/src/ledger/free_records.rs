//! The records that can be opened, and the pages of chunks without an open account.
//!
//! A chunk with such records is in the list of chunks with *room*, and each chunk lists its free
//! records. When a chunk's last account is closed and another chunk is empty too, the pages of one
//! return to the system. All of its records are then as they were before their first use, except
//! that the chunk remembers how often they were opened, for the ids of later accounts.
//!
//! No thread may access a record in the meantime. Handles lead to open accounts only. Threads that
//! open accounts, or take a snapshot of all, hold a lock. The others find a record by its key in a
//! lane, or close its account. They count as *visitors* from before that until they have left the
//! record and its lock. A closed account is in no lane. So a thread that finds a chunk empty, and
//! then no visitor, knows that none can come.
//!
//! The pages return without the lock of the free records, which each close needs.

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
pub(super) struct Visitor<'a> {
    visitors: &'a AtomicU32,
    /// The generation of the process in which the thread was counted.
    generation: u32,
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        // A signal handler may have forked during the visit. In the child `recover_after_fork`
        // forgets all visitors.
        if self.generation == Host::generation() {
            // Release: pairs with the load in `forget_records`; the visits come before.
            self.visitors.fetch_add(1_u32.wrapping_neg(), Release);
        }
    }
}

impl<const N: usize> LedgerCore<N> {
    /// Counts this thread as a visitor. It loads keys from lanes after that.
    pub(super) fn visit(&self) -> Visitor<'_> {
        // First, because it forgets the visitors of the parent process.
        self.recover_after_fork();
        self.visitors.fetch_add(1, SeqCst);
        // Pairs with the fence in `forget_records`: either that finds this visitor, or this thread
        // finds that the accounts of the chunk are in no lane.
        memory_fence(SeqCst);
        Visitor { visitors: &self.visitors, generation: Host::generation() }
    }

    /// Computes the lists and counts of chunks again, after a fork.
    ///
    /// Other threads may have been changing them. The caller holds the registry's lock.
    pub(super) fn recover_chunks(&self) {
        let _guard = self.free_lock.lock();
        self.with_room.store(0, Relaxed);
        let mut empty = 0;
        for chunk in self.chunks() {
            self.last.store(core::ptr::from_ref(chunk) as usize, Relaxed);
            // A chunk without room leaves the list when its turn comes.
            chunk.room.is_listed.store(false, Relaxed);
            self.list(chunk);
            empty += usize::from(chunk.is_empty());
        }
        self.empty_chunks.store(empty, Relaxed);
    }

    /// Returns the used records of a chunk.
    pub(super) fn used_records(chunk: &Chunk<N>) -> impl Iterator<Item = Record<N>> {
        // Acquire: pairs with the Release in `take_in`.
        (0..chunk.room.fresh.load(Acquire) as usize).map(|index| chunk.record(index))
    }

    /// Takes a record that is not in use. The caller holds the registry's lock.
    pub(super) fn take_record(self: &Arc<Self>) -> Record<N> {
        loop {
            if let Some(record) = self.take_listed() {
                return record;
            }
            // The memory comes without the lock, which each close needs.
            let chunk = self.add_chunk();
            let _guard = self.free_lock.lock();
            self.list(chunk);
        }
    }

    /// Takes a record of a chunk in the list of chunks with room.
    fn take_listed(&self) -> Option<Record<N>> {
        let _guard = self.free_lock.lock();
        while let Some(chunk) = self.first_with_room() {
            if let Some(record) = self.take_in(chunk) {
                return Some(record);
            }
            self.with_room.store(chunk.room.next.load(Relaxed), Relaxed);
            chunk.room.is_listed.store(false, Relaxed);
        }
        None
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

    /// Returns the pages of up to `most` empty chunks to the system; one such chunk keeps them.
    ///
    /// Does nothing while other threads need the records. The caller holds no lock.
    pub(super) fn return_empty_chunks(&self, most: usize) {
        if !self.has_empty_chunks() {
            return;
        }
        // While these are held, no thread opens an account in a chunk, or looks for accounts there.
        let Some(_opening) = self.registry.try_lock() else { return };
        let Some(_snapshot) = self.snapshot_lock.try_lock() else { return };
        let chunks = self.chunks().take_while(|_| self.has_empty_chunks());
        for chunk in chunks.filter(|chunk| self.forget_records(chunk)).take(most) {
            // The first page has the header.
            let page = Host::page_bytes();
            let first = core::ptr::from_ref(chunk) as usize + page;
            // SAFETY: the chunk is memory from `Host::map`. None of its records is in use, and a
            // record that is all zeros is an unused one.
            unsafe { Host::discard(first, CHUNK_BYTES - page) };
        }
    }

    /// Returns whether the pages of an empty chunk may return.
    fn has_empty_chunks(&self) -> bool {
        self.empty_chunks.load(Relaxed) >= 2
    }

    /// Makes all records of a chunk unused; returns false if that is not possible.
    ///
    /// The chunk must be empty, and not the last empty one. After that no thread accesses the
    /// records. The caller holds the registry's lock.
    fn forget_records(&self, chunk: &Chunk<N>) -> bool {
        if !chunk.is_empty() {
            return false;
        }
        let _guard = self.free_lock.lock();
        // Again, because threads may close accounts until the lock is held. Pairs with the fence in
        // `visit`. Acquire: pairs with the Release in the drop of a visitor.
        memory_fence(SeqCst);
        if self.visitors.load(Acquire) != 0 || !chunk.is_empty() || !self.has_empty_chunks() {
            return false;
        }
        let room = &chunk.room;
        let opens = room.opens.load(Relaxed).next_multiple_of(2);
        let opens_before = chunk.opens_before.load(Relaxed) + opens;
        if opens_before >= u32::MAX / 4 {
            // Some records will soon have had all ids.
            return false;
        }
        // First, so that a child that was forked in between gives no id twice. All steps leave a
        // usable chunk, also if the system does not take the pages.
        chunk.opens_before.store(opens_before, Relaxed);
        room.free.store(0, Relaxed);
        room.opens.store(0, Relaxed);
        room.fresh.store(0, Relaxed);
        self.change_empty_chunks(-1);
        true
    }
}

impl<const N: usize> Chunk<N> {
    /// Returns whether no account is open, but records have pages.
    fn is_empty(&self) -> bool {
        self.room.open.load(Relaxed) == 0 && self.room.fresh.load(Relaxed) > 0
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use thiscpu_test_support::child::assert_holds;

    use super::*;
    use crate::{Account, Ledger};

    /// A number of counters with which few accounts fill a chunk.
    const COUNTERS: usize = 64;

    /// Opens accounts that fill `chunks` chunks.
    fn open_chunks(ledger: &Ledger<COUNTERS>, chunks: usize) -> Vec<Account<COUNTERS>> {
        (0..chunks * Chunk::<COUNTERS>::RECORDS).map(|_| ledger.open()).collect()
    }

    /// Returns how many chunks have pages of records.
    fn chunks_in_use(ledger: &Ledger<COUNTERS>) -> usize {
        ledger.0.chunks().filter(|chunk| chunk.room.fresh.load(Relaxed) > 0).count()
    }

    fn open_and_close(ledger: &Ledger<COUNTERS>) {
        drop(ledger.open());
    }

    #[test]
    fn pages_stay_while_a_thread_visits() {
        let ledger = Ledger::new();
        let accounts = open_chunks(&ledger, 3);
        let visitor = ledger.0.visit();
        drop(accounts);
        assert_eq!(chunks_in_use(&ledger), 3);
        drop(visitor);
        open_and_close(&ledger);
        assert_eq!(chunks_in_use(&ledger), 1);
    }

    #[test]
    fn close_returns_two_chunks_and_sync_all() {
        let ledger = Ledger::new();
        let accounts = open_chunks(&ledger, 6);
        let visitor = ledger.0.visit();
        drop(accounts);
        drop(visitor);
        open_and_close(&ledger);
        assert_eq!(chunks_in_use(&ledger), 4);
        ledger.sync();
        assert_eq!(chunks_in_use(&ledger), 1);
    }

    #[test]
    fn for_each_returns_chunks_emptied_meanwhile() {
        let ledger = Ledger::new();
        let accounts = open_chunks(&ledger, 4);
        // As closes find it during a snapshot.
        let snapshot = ledger.0.snapshot_lock.lock();
        drop(accounts);
        assert_eq!(chunks_in_use(&ledger), 4);
        drop(snapshot);
        ledger.for_each(|_, _| unreachable!("no account is open"));
        assert_eq!(chunks_in_use(&ledger), 1);
    }

    // The pages of a free record may return, and with them its lock.
    #[test]
    fn closing_thread_is_a_visitor_while_it_holds_the_accounts_lock() {
        let ledger = Ledger::<COUNTERS>::new();
        let account = ledger.open();
        let (record, shared) = (account.0, &ledger.0);
        let free_lock = shared.free_lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(account));
            while record.is_open() {
                std::thread::yield_now();
            }
            assert!(record.lock().is_held());
            let visitors = shared.visitors.load(Relaxed);
            // Before the assertion: the thread waits for it.
            drop(free_lock);
            assert_eq!(visitors, 1);
        });
        assert_eq!(shared.visitors.load(Relaxed), 0);
    }

    // As if a signal handler had forked during a visit, and the child had gone on.
    #[test]
    fn visit_in_progress_does_not_end_in_child() {
        let ledger = Ledger::<COUNTERS>::new();
        drop(ledger.open());
        let visitor = ledger.0.visit();
        assert_holds(|| {
            ledger.0.recover_after_fork();
            drop(visitor);
            ledger.0.visitors.load(Relaxed) == 0
        });
    }

    // The state that a fork in the middle of each change leaves, at worst.
    #[test]
    fn recovery_finds_room_and_counts_empty_chunks() {
        let ledger = Ledger::new();
        let accounts = open_chunks(&ledger, 2);
        let shared = &ledger.0;
        shared.with_room.store(0, Relaxed);
        shared.empty_chunks.store(usize::MAX, Relaxed);
        shared.last.store(shared.first.load(Relaxed), Relaxed);
        shared.recovered.store(0, Relaxed);
        drop(accounts);
        assert_eq!((chunks_in_use(&ledger), shared.empty_chunks.load(Relaxed)), (1, 1));
        let accounts = open_chunks(&ledger, 3);
        assert_eq!((ledger.0.chunks().count(), chunks_in_use(&ledger)), (3, 3));
        drop(accounts);
    }
}
