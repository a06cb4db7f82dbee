//! Returning free pages of slabs in use by scavenging.
//!
//! Runs walk over all slabs, as far as each has time, and begin again every half a second. A slab
//! loses its free pages when the walk finds that nothing changed since the one before.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use thiscpu::__internal::{self, Dropped, SlabPages};

use crate::heap;

/// The least time between the beginnings of two walks.
const WALK_NS: u64 = 500_000_000;
/// The time without walks after the system has kept a page.
const RETRY_NS: u64 = 1_000_000_000;
/// The chunks that one call visits at most: 64 MiB, whose descriptors are 64 KiB.
const VISITED_MAX: usize = 1024;

// Relaxed, for all of these: the lock of runs orders them; `is_pending` reads an estimate.

/// When the last walk began, by the coarse clock.
static SINCE_NS: AtomicU64 = AtomicU64::new(0);
/// The chunk at which the walk goes on, or 0 if none is under way.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Whether the last walk has found slabs that were not idle yet.
static HAS_BUSY: AtomicBool = AtomicBool::new(false);

/// Tries to drop up to about `most` bytes of free pages, if a walk is due or under way.
///
/// Returns what it did, or `None` without a walk. The caller holds the lock of runs, and saves
/// `errno`.
pub(crate) fn drop_some(now_ns: u64, most: usize, pages: SlabPages) -> Option<Dropped> {
    let from = NEXT.load(Relaxed);
    if from == 0 {
        if now_ns.saturating_sub(SINCE_NS.load(Relaxed)) < WALK_NS || !is_pending() {
            return None;
        }
        SINCE_NS.store(now_ns, Relaxed);
        HAS_BUSY.store(false, Relaxed);
        // First: changes from here on are for the next walk.
        __internal::forget_slab_changes();
    }
    let done = heap::drop_free_pages(from..from + VISITED_MAX, most, pages);
    NEXT.store(done.next.unwrap_or(0), Relaxed);
    if done.tried > done.bytes {
        // The pages are locked, and others probably too.
        NEXT.store(0, Relaxed);
        SINCE_NS.store(now_ns + RETRY_NS, Relaxed);
    }
    if done.is_more_later {
        HAS_BUSY.store(true, Relaxed);
    }
    Some(done)
}

/// Returns whether later walks may find free pages; an estimate.
pub(crate) fn is_pending() -> bool {
    NEXT.load(Relaxed) != 0 || HAS_BUSY.load(Relaxed) || __internal::have_slabs_changed()
}
