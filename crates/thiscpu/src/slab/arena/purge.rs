//! Purging: returning the pages of free chunks to the system.
//!
//! Free chunks keep their pages for a while, because dropping a page and faulting it in again is
//! slow. A *span* lasts half a second, or longer if no thread calls. The *peak* is the highest
//! number of used chunks in this span and the one before. Pages are dropped for two reasons:
//!
//! - Age: their chunk has been free since before this span.
//! - Excess: more chunks have pages, used ones included, than the peak, a quarter of it (at most
//!   64 MiB), and 1 MiB. After 10 ms above that limit, or at once when 16 MiB above it, the chunks
//!   that exceed the peak are purged.
//!
//! So memory with pages exceeds the peak by about a quarter, at most 64 MiB, and pages that are
//! freed and needed again within half a second stay. Less room would not do for blocks of several
//! MiB: they leave holes that do not fit the next ones.
//!
//! Calls that free do it, at most 16 MiB for age, and malloc's background thread. A call that
//! allocates says how much it purges at most. Children of vfork leave it to their parent: if one
//! were killed meanwhile, nobody would release the lock.
//!
//! Pages are dropped without the lock, up to 16 MiB at a time, while the chunks are marked as used.
//! A thread that finds no other memory waits for them. A child forked meanwhile frees them again.
//! Locked pages cannot be dropped; after such a failure the purge is not repeated for a second.

use super::{ARENA, Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sys::bits::Bits;
use crate::sys::errno;
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::Machine as _;

const MIB_CHUNKS: usize = (1024 * 1024) / CHUNK_BYTES;
const SPAN_NS: u64 = 500_000_000;
const EXCESS_NS: u64 = 10_000_000;
/// The part of the peak, and the most chunks, that may have pages beyond it.
const EXCESS_PART: usize = 4;
const EXCESS_MAX: usize = 64 * MIB_CHUNKS;
const RETRY_NS: u64 = 1_000_000_000;
const PURGE_CHUNKS_MAX: usize = 16 * MIB_CHUNKS;

/// Bytes of pages that were returned to the system so far.
///
/// Not of `sys::atomic`, because models need not explore the order of statistics.
pub(super) static PURGED_BYTES: core::sync::atomic::AtomicU64 =
    core::sync::atomic::AtomicU64::new(0);

/// Counts chunks whose pages were returned to the system.
pub(super) fn count_purged(chunks: usize) {
    // Relaxed: a statistic, which orders nothing.
    PURGED_BYTES.fetch_add((chunks * CHUNK_BYTES) as u64, Relaxed);
}

#[derive(Debug)]
pub(super) struct Purging {
    /// Held by the thread that purges.
    lock: Lock,
    /// The chunks being purged: their number, and the first one in the upper half; or 0.
    in_flight: AtomicU64,
    /// When this span began, and the most chunks used in it and in the one before.
    span_since: AtomicU64,
    peak: AtomicUsize,
    peak_before: AtomicUsize,
    /// When free chunks began to have too many pages; 0 while they have not.
    excess_since: AtomicU64,
    /// When pages could not be dropped last; 0 if the last purge dropped all.
    failed_at: AtomicU64,
}

impl Purging {
    pub(super) const fn new() -> Purging {
        Purging {
            lock: Lock::new(),
            in_flight: AtomicU64::new(0),
            span_since: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            peak_before: AtomicUsize::new(0),
            excess_since: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
        }
    }

    /// Waits for a purge and rules others out. The caller must not hold the arena's lock.
    pub(super) fn lock(&self) -> Guard<'_> {
        self.lock.lock()
    }

    /// Rules purges out, unless one is running.
    pub(super) fn try_lock(&self) -> Option<Guard<'_>> {
        self.lock.try_lock()
    }

    /// Records that the chunks in flight were freed; the caller holds the arena's lock.
    pub(super) fn end_in_flight(&self) {
        self.in_flight.store(0, Relaxed);
    }

    /// Returns whether chunks are being purged, or unmapped; the caller holds the arena's lock.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Relaxed) != 0
    }

    /// Raises the peak of this span; the caller holds the arena's lock.
    pub(super) fn raise_peak(&self, used: usize) {
        self.peak.store(self.peak.load(Relaxed).max(used), Relaxed);
    }
}

impl Arena {
    // Relaxed, in the functions that only load: estimates. A thread that misses another's store
    // checks again soon.

    /// Returns whether more free chunks have pages than are kept without a look at the clock.
    fn is_purge_possible(&self) -> bool {
        let (dirty, used) = (self.dirty.load(Relaxed), self.used.load(Relaxed));
        dirty > (used / 16).min(64 * MIB_CHUNKS) + MIB_CHUNKS
    }

    /// Returns how many chunks have too many pages at a time, and have had for long enough.
    fn excess(&self, now: u64) -> usize {
        let (dirty, used) = (self.dirty.load(Relaxed), self.used.load(Relaxed));
        let Purging { peak, peak_before, excess_since, .. } = &self.purging;
        let peak = used.max(peak.load(Relaxed)).max(peak_before.load(Relaxed));
        let (with_pages, most) =
            (used + dirty, peak + (peak / EXCESS_PART).min(EXCESS_MAX) + MIB_CHUNKS);
        let since = excess_since.load(Relaxed);
        if with_pages <= most {
            if since != 0 {
                excess_since.store(0, Relaxed);
            }
            return 0;
        }
        if since == 0 {
            excess_since.store(now, Relaxed);
        }
        let is_far_excess = with_pages > most + 16 * MIB_CHUNKS;
        let is_due = is_far_excess || (since != 0 && now.saturating_sub(since) > EXCESS_NS);
        if is_due { with_pages - peak } else { 0 }
    }

    /// Returns whether the pages that this span found are old enough by now.
    fn is_span_over(&self, now: u64) -> bool {
        now.saturating_sub(self.purging.span_since.load(Relaxed)) >= SPAN_NS
    }

    /// Returns whether pages could not be dropped a moment ago.
    fn has_just_failed(&self, now: u64) -> bool {
        let failed_at = self.purging.failed_at.load(Relaxed);
        failed_at != 0 && now.saturating_sub(failed_at) < RETRY_NS
    }

    /// Purges what is due, at most `most` chunks, and of these at most 16 MiB for age.
    ///
    /// Returns how many it purged: none if another thread purges. The caller holds no lock.
    fn purge_at_most_if_due(&self, now: u64, most: usize) -> usize {
        let excess = self.excess(now).min(most);
        if (excess == 0 && !self.is_span_over(now)) || self.has_just_failed(now) {
            return 0;
        }
        if Host::is_vfork_child() {
            return 0;
        }
        let Some(_guard) = self.purging.lock.try_lock() else { return 0 };
        let mut purged = 0;
        if excess > 0 {
            purged += self.purge(excess);
        }
        if excess < most && self.is_span_over(now) {
            purged += self.purge_by_age(now, (most - excess).min(PURGE_CHUNKS_MAX));
        }
        purged
    }

    /// Purges chunks that were dirty when this span began; begins the next if none is left.
    ///
    /// Returns how many it purged. The caller holds the purge lock.
    fn purge_by_age(&self, now: u64, most: usize) -> usize {
        let purged = self.purge_among(Arena::aged_bits, most);
        if purged == most {
            // There may be more; the next call continues.
            return purged;
        }
        let _guard = self.lock();
        self.aged_bits().copy(self.dirty_bits(), self.high());
        let used = self.used.load(Relaxed);
        let Purging { span_since, peak, peak_before, .. } = &self.purging;
        // If no thread has looked at the clock for longer than a span, its peak may be long past.
        // Chunks that are dirty now were used since: older ones were purged above.
        let recent = peak.load(Relaxed).min(used + self.dirty.load(Relaxed));
        peak_before.store(recent, Relaxed);
        peak.store(used, Relaxed);
        span_since.store(now, Relaxed);
        purged
    }

    /// Purges up to `most` free chunks; returns how many. The caller holds the purge lock.
    pub(super) fn purge(&self, most: usize) -> usize {
        self.purge_among(Arena::dirty_bits, most)
    }

    /// Purges up to `most` free chunks among those with such a bit; returns how many.
    ///
    /// The highest ones come first, because allocations take the lowest ones. Those that cannot be
    /// dropped do not count, or locked pages at the top would keep all others.
    fn purge_among(&self, bits: fn(&Arena) -> Bits<'static>, most: usize) -> usize {
        let (mut end, mut dropped, mut has_failed) = (usize::MAX, 0, false);
        loop {
            let left = (most - dropped).min(PURGE_CHUNKS_MAX);
            let Some((first, count)) = self.take_dirty(bits, end, left) else { break };
            self.unadvise(first, count);
            // SAFETY: `take_dirty` has marked these free chunks as used, so that no other thread
            // uses them.
            let is_done = unsafe { Host::discard(self.address(first), count * CHUNK_BYTES) };
            self.return_purged(first, count, !is_done);
            has_failed |= !is_done;
            dropped += if is_done { count } else { 0 };
            end = first;
        }
        let failed_at = if has_failed { Host::coarse_time().max(1) } else { 0 };
        self.purging.failed_at.store(failed_at, Relaxed);
        count_purged(dropped);
        dropped
    }

    /// Takes the last free chunks that have such a bit, below `end`: the first one and how many.
    fn take_dirty(
        &self,
        bits: fn(&Arena) -> Bits<'static>,
        end: usize,
        most: usize,
    ) -> Option<(usize, usize)> {
        let _guard = self.lock();
        let end = end.min(self.high());
        if end == 0 {
            // Also if the arena was never used, and has no bits yet.
            return None;
        }
        let (used, dirty) = (self.used_bits(), bits(self));
        let end = dirty.after_last_without(used, true, 0, end);
        let first = dirty.after_last_without(used, false, end.saturating_sub(most), end);
        let count = end - first;
        if count == 0 {
            return None;
        }
        self.take_in_flight(first, count);
        Some((first, count))
    }

    /// Takes free chunks, which are to be purged or unmapped; the caller holds the arena's lock.
    pub(super) fn take_in_flight(&self, first: usize, count: usize) {
        // Stored first, so that a child forked from here on frees them again.
        self.purging.in_flight.store((first as u64) << 32 | count as u64, Relaxed);
        self.raise_after(first + count);
        self.used_bits().put(first, count, true);
        let dirty = self.dirty_bits().count(first, count);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(dirty), Relaxed);
    }

    /// Frees chunks that were taken and not unmapped.
    pub(super) fn return_purged(&self, first: usize, count: usize, is_dirty: bool) {
        let _guard = self.lock();
        self.mark_free(first, count, is_dirty);
        self.purging.end_in_flight();
    }

    /// Frees chunks that the parent was purging or unmapping; returns whether there were any.
    ///
    /// Those that may be unmapped are lost. Then the counts are to be recounted. The caller holds
    /// the arena's lock.
    pub(super) fn recover_in_flight(&self) -> bool {
        let piece = self.purging.in_flight.load(Relaxed);
        if piece != 0 {
            let (first, count) = ((piece >> 32) as usize, piece as u32 as usize);
            if self.unmapped_bits().find(true, first, first + count) < first + count {
                self.used_bits().put(first, count, true);
                self.foreign.store(self.foreign.load(Relaxed) + count, Relaxed);
            } else {
                self.mark_free(first, count, true);
            }
            self.purging.end_in_flight();
        }
        piece != 0
    }
}

/// Purges what is due, and unmaps chunks while address space is scarce.
///
/// Does neither while another thread purges. Looks at the clock only if many free chunks have
/// pages. The caller holds no lock.
#[inline]
pub(crate) fn purge_if_due() {
    if ARENA.is_unmap_due() {
        ARENA.unmap_excess();
    }
    if ARENA.is_purge_possible() {
        ARENA.purge_at_most_if_due(Host::coarse_time().max(1), usize::MAX);
    }
}

/// Purges what is due, at most `most_bytes`; returns how many bytes it purged.
///
/// For calls that allocate. The next such call continues.
pub fn purge_some_if_due(most_bytes: usize) -> usize {
    if !has_free_pages() {
        return 0;
    }
    let most = most_bytes / CHUNK_BYTES;
    ARENA.purge_at_most_if_due(Host::coarse_time().max(1), most) * CHUNK_BYTES
}

/// Purges at most `most_bytes` of free chunks, whatever their age; returns how many bytes.
///
/// Does nothing while another thread purges, or if pages could not be dropped a moment ago.
pub fn purge_some(most_bytes: usize) -> usize {
    if !has_free_pages() || ARENA.has_just_failed(Host::coarse_time().max(1)) {
        return 0;
    }
    let Some(_guard) = ARENA.purging.try_lock() else { return 0 };
    ARENA.purge(most_bytes / CHUNK_BYTES) * CHUNK_BYTES
}

/// Calls `free`, and purges as many chunks as it freed, if many free chunks have pages then.
///
/// For a cache that closes: the program shows by that that it does not need the memory again. The
/// caller holds no lock.
pub(crate) fn purge_freed_by(free: impl FnOnce()) {
    let before = ARENA.dirty.load(Relaxed);
    free();
    purge_if_due();
    let freed = ARENA.dirty.load(Relaxed).saturating_sub(before);
    if freed > 0 && ARENA.is_purge_possible() && !Host::is_vfork_child() {
        purge_some(freed * CHUNK_BYTES);
    }
}

/// Returns whether any free chunk may have pages; an estimate.
pub fn has_free_pages() -> bool {
    ARENA.dirty.load(Relaxed) > 0
}

/// Purges all free chunks; returns how many bytes that was.
pub fn purge() -> usize {
    if ARENA.is_unused() {
        return 0;
    }
    let _errno = errno::save();
    let _guard = ARENA.purging.lock();
    {
        let _guard = ARENA.lock();
        ARENA.count_dirty(0, ARENA.high());
    }
    ARENA.purge(usize::MAX) * CHUNK_BYTES
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn new_arena() -> &'static Arena {
        Box::leak(Box::new(Arena::new()))
    }

    /// Lets a free call purge at this time; returns how many chunks are dirty then.
    fn dirty_at(arena: &Arena, now: u64) -> usize {
        arena.purge_at_most_if_due(now, usize::MAX);
        arena.dirty.load(Relaxed)
    }

    #[test]
    fn pages_stay_for_half_a_second_after_a_free() {
        let (arena, start) = (new_arena(), 1_000 * MS);
        assert_eq!(arena.alloc(640, 1), Some(0));
        arena.free(320, 320);
        assert_eq!(dirty_at(arena, start), 320);
        // These are free again, but not since before the span.
        assert_eq!(arena.alloc(20, 1), Some(320));
        arena.free(320, 20);
        assert_eq!(dirty_at(arena, start + 499 * MS), 320);
        // 16 MiB at a time.
        assert_eq!(dirty_at(arena, start + 500 * MS), 320 - PURGE_CHUNKS_MAX);
        assert_eq!(dirty_at(arena, start + 501 * MS), 20);
        assert_eq!(dirty_at(arena, start + 1_000 * MS), 20);
        assert_eq!(dirty_at(arena, start + 1_001 * MS), 0);
        assert!(!arena.dirty_bits().has(320), "the count is right, and the bits are not");
    }

    #[test]
    fn child_of_vfork_purges_nothing() {
        let (arena, start) = (new_arena(), 1_000 * MS);
        assert_eq!(arena.alloc(100, 1), Some(0));
        arena.free(0, 100);
        arena.purge_at_most_if_due(start, usize::MAX);
        let scope = crate::vfork_scope();
        assert_eq!(dirty_at(arena, start + 1_000 * MS), 100);
        drop(scope);
        assert_eq!(dirty_at(arena, start + 1_000 * MS), 0);
    }

    #[test]
    fn locked_chunks_do_not_keep_others() {
        const LOCKED: usize = 4;
        let (arena, start) = (new_arena(), 1_000 * MS);
        assert_eq!(arena.alloc(100, 1), Some(0));
        let top = arena.address(100 - LOCKED) as *const _;
        // SAFETY: the pages are mapped, and the lock changes no content.
        if unsafe { libc::mlock(top, LOCKED * CHUNK_BYTES) } != 0 {
            return eprintln!("skipped: no memory may be locked");
        }
        arena.free(0, 100);
        arena.purge_at_most_if_due(start, LOCKED);
        arena.purge_at_most_if_due(start + 500 * MS, LOCKED);
        let (dirty, unlocked) = (arena.dirty_bits(), 100 - LOCKED);
        assert_eq!(dirty.count(unlocked, LOCKED), LOCKED, "these cannot be dropped");
        assert_eq!(dirty.count(0, unlocked), unlocked - LOCKED, "others wait for them");
    }

    #[test]
    fn excess_above_peak_is_purged_after_10_ms() {
        let (arena, start) = (new_arena(), 1_000 * MS);
        assert_eq!(arena.alloc(100, 1), Some(0));
        assert_eq!(arena.alloc(1, 1), Some(100));
        arena.free(0, 100);
        // Too long for the free run, so that 231 chunks have pages, and 131 were used at the peak.
        assert_eq!(arena.alloc(130, 1), Some(101));
        assert_eq!(dirty_at(arena, start), 100);
        assert_eq!(dirty_at(arena, start + 10 * MS), 100);
        assert_eq!(dirty_at(arena, start + 10 * MS + 1), 0);
    }

    #[test]
    fn a_quarter_more_than_the_peak_stays() {
        let (arena, start) = (new_arena(), 1_000 * MS);
        assert_eq!(arena.alloc(200, 1), Some(0));
        assert_eq!(arena.alloc(1_000, 1), Some(200));
        arena.free(0, 200);
        // Too long for the free run, so that 1,401 chunks have pages, and 1,201 are used.
        assert_eq!(arena.alloc(201, 1), Some(1_200));
        assert_eq!(dirty_at(arena, start), 200);
        assert_eq!(dirty_at(arena, start + 20 * MS), 200);
    }

    #[test]
    fn excess_is_purged_from_the_top_down_to_the_peak() {
        let (arena, start) = (new_arena(), 1_000 * MS);
        assert_eq!(arena.alloc(400, 1), Some(0));
        assert_eq!(arena.alloc(1, 1), Some(400));
        arena.free(0, 400);
        assert_eq!(arena.alloc(500, 1), Some(401));
        arena.free(801, 100);
        // 500 are dirty, 401 used, and 501 were.
        assert_eq!(dirty_at(arena, start), 100);
        assert_eq!(arena.dirty_bits().find(false, 0, 901), 100, "low chunks were purged");
    }
}
