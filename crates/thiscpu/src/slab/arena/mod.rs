//! Where objects live: a region of address arena, handed out in chunks of 64 KiB.
//!
//! What a chunk is, is found from an address by a subtraction and a shift: chunks follow each other, and so do their tags.
//! The region becomes accessible from the front, a step at a time, by [`self::map`]. Chunks that are given back stay
//! accessible, so that a late reader never faults; their pages go back to the system by [`self::purge`].
//!
//! Under the lock every store leaves a usable state: a run is taken by its bits, and the counts are estimates that a
//! forked child makes anew.

mod bits;
pub(crate) mod heap_error;
mod huge_pages;
pub mod large;
mod map;
pub(crate) mod purge;
mod runs;
pub(super) mod slab;

use crate::sys::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::lock::{Guard, Lock};
use bits::Bits;
use huge_pages::SlabThp;
use map::{CHUNKS_MAX, TAG_CHUNKS, layout};
use purge::Purging;
use slab::{OBJECT_BITS_BYTES, Slab};

/// The bytes of a chunk, and what chunks are aligned to.
pub(super) const CHUNK_BYTES: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };
/// The chunks of which the longest free run is remembered together.
const SUMMARY_CHUNKS: usize = if cfg!(thiscpu_model) { 64 } else { 1024 };

/// What a chunk is. A slab of a class with a number of its own is that number, above 0.
pub type Tag = i32;
/// Nobody's.
pub const NOTHING: Tag = 0;
/// The beginning of a large block.
const LARGE: Tag = -1;
/// A slab of a cache that has no number of its own.
pub(super) const ANY_CACHE: Tag = -2;

/// What is known of the arena. What fast paths read has a line of its own, with what changes as rarely.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Arena {
    /// The address that is [`TAG_CHUNKS`] chunks in front of chunk 0, and as many tags in front of its tag, where there are tags to be read for all chunks there can
    /// be, and nobody watches; or [`POISON_BASE`]. What fast paths read.
    fast_origin: AtomicUsize,
    /// The address of chunk 0.
    base: AtomicUsize,
    /// How many chunks have tags, or 0 before the first.
    len: AtomicUsize,
    /// The address of the tag of chunk 0.
    tags: AtomicUsize,
    /// The address of the first chunk's slab.
    slabs: AtomicUsize,
    /// The address of the bits of its objects.
    object_bits: AtomicUsize,
    /// Where the region begins, and how many chunks it has room for.
    start: AtomicUsize,
    limit: AtomicUsize,
    lock: Lock,
    /// How many chunks are accessible, or passed by.
    committed: AtomicUsize,
    /// Whether there are tags to be read for all chunks there can be.
    has_all_tags: AtomicBool,
    /// How far slabs, and their objects' bits, are accessible, from where the region begins.
    slabs_committed: AtomicUsize,
    object_bits_committed: AtomicUsize,
    /// Whether tags for all chunks are mapped, or just being, or were when this process was forked.
    mapping_metadata: AtomicBool,
    /// No chunk at or above was ever used.
    high: AtomicUsize,
    used: AtomicUsize,
    used_peak: AtomicUsize,
    /// How many chunks were passed by; they count as used for ever.
    foreign: AtomicUsize,
    /// How many free chunks may have pages.
    dirty: AtomicUsize,
    purging: Purging,
    thp: SlabThp,
}

/// What functions in assembly have to know of the arena.
#[cfg(not(thiscpu_model))]
pub(crate) mod for_assembly {
    use core::mem::offset_of;

    pub use super::{ARENA, CHUNKS_FROM_ORIGIN};
    use super::{Arena, CHUNK_BYTES};

    /// Where the address that chunks and tags are counted from is, in it.
    pub const FAST_ORIGIN: usize = offset_of!(Arena, fast_origin);
    /// The bits of an address that say where in its chunk it is.
    pub const CHUNK_SHIFT: u32 = CHUNK_BYTES.trailing_zeros();
}

/// If chunks begin here, no address that there can be is in one, nor what often takes the place of an address.
const POISON_BASE: usize = 0x9e37 << 48;

#[cfg(not(thiscpu_model))]
const _: () = assert!(core::mem::offset_of!(Arena, lock) == 64, "fast paths have the first line");
/// How many chunks and what is counted like them there can be, which is what fast paths compare with.
pub const CHUNKS_FROM_ORIGIN: usize = TAG_CHUNKS + CHUNKS_MAX;
// As a part of instructions.
const _: () = assert!(CHUNKS_FROM_ORIGIN <= i32::MAX as usize);

/// No memory was found, while free chunks were used by whoever drops their pages.
struct PurgeInFlight;

/// The arena.
pub static ARENA: Arena = Arena::new();

/// The chunk that holds an address, if that is in the arena.
#[inline(always)]
fn chunk_of(address: usize) -> Option<usize> {
    // Acquire: pairs with the Release in `tell`. What the others say was stored before.
    let len = ARENA.len.load(Acquire);
    let chunk = address.wrapping_sub(ARENA.base.load(Relaxed)) / CHUNK_BYTES;
    (chunk < len).then_some(chunk)
}

/// What the chunk that holds an address is.
#[inline(always)]
pub fn tag_of(address: usize) -> Tag {
    match chunk_of(address) {
        // SAFETY: there is a tag for each chunk below `most`.
        Some(chunk) => unsafe { ARENA.tag_unchecked(chunk) }.load(Relaxed) as Tag,
        None => NOTHING,
    }
}

/// As [`tag_of`], for fast paths: nothing while somebody watches, or where address arena is scarce. How many chunks there can be is a constant, so there is one
/// word to load before the tag.
#[inline(always)]
pub fn fast_tag_of(address: usize) -> Tag {
    // Acquire: pairs with the Release in `publish_origin`. There are tags from there on, and what came before `watch` is seen.
    let origin = ARENA.fast_origin.load(Acquire);
    let number = address.wrapping_sub(origin) / CHUNK_BYTES;
    if number < CHUNKS_FROM_ORIGIN {
        let tag = origin + number * size_of::<Tag>();
        // SAFETY: there is a tag for each chunk there can be, and 0 for what is ahead of them, to be read for ever.
        return unsafe { &*(tag as *const AtomicU32) }.load(Relaxed) as Tag;
    }
    NOTHING
}

/// Has [`fast_tag_of`] say nothing from now on, so that whoever asks goes another way; or what there is. At first nobody
/// has asked for that, and it says nothing. Who begins to watch does not mind a few calls.
pub fn disable_fast_free(is_off: bool) {
    // Against the first tags, after which it is looked whether somebody watches.
    let _guard = ARENA.lock();
    FAST_FREE_OFF.store(is_off, Relaxed);
    ARENA.publish_origin();
}

static FAST_FREE_OFF: AtomicBool = AtomicBool::new(true);

/// The bytes of chunks in use, the most of those there ever were, and the bytes of chunks whose pages the system has not got
/// back.
pub fn memory() -> [usize; 3] {
    // Relaxed: estimates.
    let used = ARENA.used.load(Relaxed);
    let with_pages = used + ARENA.dirty.load(Relaxed) + ARENA.unused_advised();
    [used, ARENA.used_peak.load(Relaxed), with_pages].map(|chunks| chunks * CHUNK_BYTES)
}

impl Arena {
    const fn new() -> Arena {
        Arena {
            lock: Lock::new(),
            fast_origin: AtomicUsize::new(POISON_BASE),
            base: AtomicUsize::new(POISON_BASE),
            len: AtomicUsize::new(0),
            tags: AtomicUsize::new(0),
            slabs: AtomicUsize::new(0),
            object_bits: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            has_all_tags: AtomicBool::new(false),
            slabs_committed: AtomicUsize::new(0),
            object_bits_committed: AtomicUsize::new(0),
            mapping_metadata: AtomicBool::new(false),
            high: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            used_peak: AtomicUsize::new(0),
            foreign: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            purging: Purging::new(),
            thp: SlabThp::new(),
        }
    }

    /// # Safety
    ///
    /// `chunk` is below `most`.
    #[inline(always)]
    unsafe fn tag_unchecked(&self, chunk: usize) -> &'static AtomicU32 {
        // SAFETY: the tags begin there, one for each chunk, accessible for ever.
        unsafe { &*((self.tags.load(Relaxed) + chunk * size_of::<Tag>()) as *const AtomicU32) }
    }

    /// Says where fast paths find tags, if they do: what they load must be mapped for each chunk that they may ask for. Under the lock.
    fn publish_origin(&self) {
        let is_begun = self.len.load(Relaxed) != 0;
        let is_shown = is_begun && self.has_all_tags.load(Relaxed) && !FAST_FREE_OFF.load(Relaxed);
        let origin =
            if is_shown { self.base.load(Relaxed) - TAG_CHUNKS * CHUNK_BYTES } else { POISON_BASE };
        // Release: pairs with the Acquire in `fast_tag_of`.
        self.fast_origin.store(origin, Release);
    }

    fn tag_word(&self, chunk: usize) -> &'static AtomicU32 {
        assert!(chunk < self.len.load(Relaxed));
        // SAFETY: just looked at.
        unsafe { self.tag_unchecked(chunk) }
    }

    /// What a chunk is.
    pub(super) fn tag(&self, chunk: usize) -> Tag {
        // Acquire: pairs with the Release in `set_tag`.
        self.tag_word(chunk).load(Acquire) as Tag
    }

    /// Says what a chunk is, to whoever may look at what is known of it.
    fn set_tag(&self, chunk: usize, tag: Tag) {
        // Release: pairs with the Acquire in `tag`.
        self.tag_word(chunk).store(tag as u32, Release);
    }

    fn address(&self, chunk: usize) -> usize {
        self.base.load(Relaxed) + chunk * CHUNK_BYTES
    }

    /// What is known of the slab, or large block, that begins with a chunk which was ever used.
    pub(super) fn slab(&self, chunk: usize) -> &'static Slab {
        assert!(chunk < self.high.load(Acquire));
        let slabs = self.slabs.load(Relaxed);
        // SAFETY: there is one for each chunk, accessible for ever for those that were ever used; zero is one.
        unsafe { &*((slabs + chunk * size_of::<Slab>()) as *const Slab) }
    }

    /// A bit for each object of the slab that begins with a chunk which was ever used.
    fn object_bits(&self, chunk: usize) -> Bits<'static> {
        assert!(chunk < self.high.load(Acquire));
        let words =
            (self.object_bits.load(Relaxed) + chunk * OBJECT_BITS_BYTES) as *const AtomicU64;
        // SAFETY: as above.
        Bits(unsafe { core::slice::from_raw_parts(words, OBJECT_BITS_BYTES / 8) })
    }

    /// Whether nothing was ever in it, nor is.
    fn is_unused(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// How many chunks were ever used.
    pub(super) fn high(&self) -> usize {
        self.high.load(Acquire)
    }

    fn bits(&self, offset: usize) -> Bits<'static> {
        let words = (self.start.load(Relaxed) + offset) as *const AtomicU64;
        // SAFETY: the words are there, accessible for ever for chunks that have tags, accessed through this only, and
        // zeros are a valid beginning.
        Bits(unsafe { core::slice::from_raw_parts(words, self.len.load(Relaxed) / 64) })
    }

    fn used_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).used)
    }

    /// The chunks that may hold anything, if they are free; if not it means nothing, but to who has just taken them.
    fn dirty_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).dirty)
    }

    fn lock(&self) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.first_in_generation && self.len.load(Relaxed) != 0 {
            // The fork may have come between the two.
            self.publish_len(self.len.load(Relaxed));
            let took_back = self.recover_in_flight();
            if guard.owner_died || took_back {
                self.recount();
            }
        }
        guard
    }

    /// What a fork amid a change leaves behind is counts that are off.
    fn recount(&self) {
        let high = self.high.load(Relaxed);
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        let missing = self.foreign.load(Relaxed);
        self.used.store(used.count(0, high).saturating_sub(missing), Relaxed);
        self.dirty.store(dirty.count_without(used, high), Relaxed);
    }

    /// Takes `count` chunks that follow each other, from a multiple of `align` on. The first; `None` if there is no
    /// memory.
    pub(super) fn alloc(&self, count: usize, align: usize) -> Option<usize> {
        self.alloc_found(count, || self.find_any(count, align))
    }

    /// The same for who wants neighbours: `next`, behind the last that it has taken, if that is free and in the same extent;
    /// else such as are far from what others of its kind take.
    pub(super) fn alloc_in_extent(&self, next: usize, count: usize) -> Option<usize> {
        if self.fits_extent(next, count) && self.extend(next, count).is_some() {
            return Some(next);
        }
        self.alloc_found(count, || self.find_extent(count))
    }

    /// Takes what `find` finds under the lock.
    fn alloc_found(&self, count: usize, find: impl Fn() -> Option<usize>) -> Option<usize> {
        match self.try_alloc(count, &find) {
            Err(PurgeInFlight) => {
                // What is missing may be what somebody is just dropping the pages of; in this turn nobody is.
                let _guard = self.purging.lock();
                self.try_alloc(count, &find).unwrap_or(None)
            }
            Ok(taken) => taken,
        }
    }

    /// The same where no chunk that nobody needs is used for anything; else there may be memory that it does not see.
    fn try_alloc(
        &self,
        count: usize,
        find: impl Fn() -> Option<usize>,
    ) -> Result<Option<usize>, PurgeInFlight> {
        let _guard = self.lock();
        match self.init().and_then(|()| find()) {
            None if self.purging.is_in_flight() => Err(PurgeInFlight),
            None => Ok(None),
            Some(first) => {
                self.mark_used(first, count);
                Ok(Some(first))
            }
        }
    }

    /// Takes the chunks behind a run too, if they are free.
    fn extend(&self, end: usize, count: usize) -> Option<()> {
        let _guard = self.lock();
        let (high, wanted) = (self.high.load(Relaxed), end.checked_add(count)?);
        let near = wanted.min(high);
        if self.used_bits().find(true, end.min(near), near) < near {
            return None;
        }
        if wanted > high {
            self.commit_to(wanted).ok()?;
            // Release: pairs with the Acquire in `slab`; it is accessible.
            self.high.store(wanted, Release);
        }
        self.mark_used(end, count);
        Some(())
    }

    /// Under the lock; they are free and accessible.
    fn mark_used(&self, first: usize, count: usize) {
        self.raise_after(first + count);
        // First: a fork after this loses them, and before it they are nobody's.
        self.used_bits().put(first, count, true);
        let dirty = self.dirty_bits().count(first, count);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(dirty), Relaxed);
        let used = self.used.load(Relaxed) + count;
        self.used.store(used, Relaxed);
        self.used_peak.store(self.used_peak.load(Relaxed).max(used), Relaxed);
    }

    /// Gives chunks back, whose tags are [`NOTHING`] again. The next is [`self::purge::purge_if_excess`], without a lock.
    fn free(&self, first: usize, count: usize) {
        self.locked().free(first, count);
    }

    /// The same together with a look at what they are.
    fn locked(&self) -> LockedArena<'_> {
        LockedArena { arena: self, _guard: self.lock() }
    }

    /// Under the lock: they are free, and dirty or all zero.
    fn mark_free(&self, first: usize, count: usize, is_dirty: bool) {
        self.raise_for_free(first, count);
        self.dirty_bits().put(first, count, is_dirty);
        self.used_bits().put(first, count, false);
        if is_dirty {
            self.dirty.store(self.dirty.load(Relaxed) + count, Relaxed);
        }
    }
}

/// A arena whose lock is held.
struct LockedArena<'a> {
    arena: &'a Arena,
    _guard: Guard<'a>,
}

impl LockedArena<'_> {
    /// As [`Arena::give`].
    fn free(&self, first: usize, count: usize) {
        let arena = self.arena;
        // First: a child that is forked in between counts them all the same.
        arena.count_dirty(first, count);
        arena.mark_free(first, count, true);
        arena.used.store(arena.used.load(Relaxed).saturating_sub(count), Relaxed);
    }
}
