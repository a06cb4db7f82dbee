//! The state of the records of a chunk that can be opened.

use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize};

/// The records of a chunk that can be opened.
///
/// Holders of the ledger's `free_lock` access it. Others load `fresh` only.
#[derive(Default)]
pub(super) struct Room {
    /// The key of a free record, which leads to the next one; or 0.
    pub(super) free: AtomicUsize,
    /// The number of records that were used since the chunk's pages returned.
    pub(super) fresh: AtomicU32,
    /// The number of open accounts; maybe too large in a child forked in the middle of a change.
    pub(super) open: AtomicU32,
    /// The next chunk with room, or 0.
    pub(super) next: AtomicUsize,
    /// Whether the chunk is in the list of chunks with room.
    pub(super) is_listed: AtomicBool,
    /// The largest number of opens and closes of a free record.
    pub(super) opens: AtomicU32,
}
