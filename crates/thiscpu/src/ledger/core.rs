//! The state that all handles and accounts of a ledger share.

use super::snapshot_state::SnapshotState;
use super::transfer_log::TransferLog;
use crate::sys::Host;
use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering::Acquire};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;

const COUNTERS_MAX: usize = 64;

pub(super) struct LedgerCore<const N: usize> {
    /// Held by a thread that opens accounts, or needs all of them to stay open.
    pub(super) registry: Lock,
    /// The chunks of records, the oldest first.
    pub(super) first: AtomicUsize,
    pub(super) last: AtomicUsize,
    /// The number of records that were ever in use.
    pub(super) records: AtomicU32,
    /// Guards the `Room` of each chunk, and the two words that follow.
    pub(super) free_lock: Lock,
    /// The first chunk with room, or 0.
    pub(super) with_room: AtomicUsize,
    /// The number of chunks with pages but without an open account.
    pub(super) empty_chunks: AtomicUsize,
    /// The number of threads that may access records which they found in a lane.
    pub(super) visitors: AtomicU32,
    /// The item of the cache in the lanes, or 0.
    pub(super) item: AtomicUsize,
    /// The generation of the process that has recovered after its fork.
    pub(super) recovered: AtomicU32,
    pub(super) open: AtomicUsize,
    pub(super) transfers: Lock,
    pub(super) transfer_log: TransferLog,
    pub(super) snapshot_lock: Lock,
    pub(super) snapshot_state: SnapshotState,
    pub(super) is_signed: bool,
}

// SAFETY: all fields are atomics, locks or plain data, and the chunks belong to the ledger alone.
unsafe impl<const N: usize> Send for LedgerCore<N> {}
// SAFETY: all fields are atomics, locks or plain data that never change.
unsafe impl<const N: usize> Sync for LedgerCore<N> {}

impl<const N: usize> LedgerCore<N> {
    pub(super) fn new(is_signed: bool) -> LedgerCore<N> {
        const { assert!(N >= 1 && N <= COUNTERS_MAX, "Ledger<N> takes 1 to 64 counters") };
        LedgerCore {
            registry: Lock::new(),
            first: AtomicUsize::new(0),
            last: AtomicUsize::new(0),
            records: AtomicU32::new(0),
            free_lock: Lock::new(),
            with_room: AtomicUsize::new(0),
            empty_chunks: AtomicUsize::new(0),
            visitors: AtomicU32::new(0),
            item: AtomicUsize::new(0),
            recovered: AtomicU32::new(Host::generation()),
            open: AtomicUsize::new(0),
            transfers: Lock::new(),
            transfer_log: TransferLog::default(),
            snapshot_lock: Lock::new(),
            snapshot_state: SnapshotState::default(),
            is_signed,
        }
    }

    /// Returns the cache's item, unless this is the atomic tier or memory was unavailable.
    pub(super) fn item(&self) -> Option<usize> {
        // Acquire: pairs with the Release in `alloc_cache`.
        match self.item.load(Acquire) {
            0 => None,
            item => Some(item),
        }
    }
}
