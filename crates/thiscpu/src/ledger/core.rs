//! What the handles and accounts of a ledger share.

use super::snapshot_state::SnapshotState;
use super::transfer_log::TransferLog;
use crate::sys::Host;
use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering::Acquire};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;

/// The most counters that an account can have.
const COUNTERS_MAX: usize = 64;

/// What handles and accounts of a ledger share.
pub(super) struct LedgerCore<const N: usize> {
    /// Held by whoever opens accounts, or needs all of them.
    pub(super) registry: Lock,
    /// The chunks that records are in, the oldest first.
    pub(super) first: AtomicUsize,
    pub(super) last: AtomicUsize,
    /// How many records have been in use.
    pub(super) records: AtomicU32,
    /// Those that nobody uses now, by key.
    pub(super) free_lock: Lock,
    pub(super) free: AtomicUsize,
    /// The cache, an item in the lanes.
    pub(super) item: AtomicUsize,
    /// The generation of the process that has ended what a fork cut in two.
    pub(super) recovered: AtomicU32,
    pub(super) open: AtomicUsize,
    pub(super) transfers: Lock,
    pub(super) transfer_log: TransferLog,
    pub(super) snapshot_lock: Lock,
    pub(super) snapshot_state: SnapshotState,
    pub(super) is_signed: bool,
}

// SAFETY: all of it is atomics and locks; the chunks it points to are its own.
unsafe impl<const N: usize> Send for LedgerCore<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for LedgerCore<N> {}

impl<const N: usize> LedgerCore<N> {
    pub(super) fn new(is_signed: bool) -> LedgerCore<N> {
        const { assert!(N >= 1 && N <= COUNTERS_MAX, "a ledger has 1 to 64 counters") };
        LedgerCore {
            registry: Lock::new(),
            first: AtomicUsize::new(0),
            last: AtomicUsize::new(0),
            records: AtomicU32::new(0),
            free_lock: Lock::new(),
            free: AtomicUsize::new(0),
            item: AtomicUsize::new(0),
            recovered: AtomicU32::new(Host::generation()),
            open: AtomicUsize::new(0),
            transfers: Lock::new(),
            transfer_log: TransferLog::new(),
            snapshot_lock: Lock::new(),
            snapshot_state: SnapshotState::new(),
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
}
