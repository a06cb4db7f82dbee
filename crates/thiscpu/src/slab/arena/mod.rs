//! The arena: the address range that objects live in, handed out in chunks of 64 KiB.
//!
//! Chunks are adjacent, and so are their tags, so a subtraction and a shift lead from an address to
//! the tag of its chunk. The range is committed from its beginning, a step at a time, by
//! [`self::map`]. [`self::purge`] returns the pages of freed chunks to the system. Freed chunks
//! of caches stay mapped; other free chunks may become holes (see [`self::holes`]).
//!
//! Under the lock, every store leaves a usable state. Chunks are allocated by setting their bits,
//! and the counts are estimates that a forked child recounts.

mod alloc;
pub(crate) mod free_pages;
pub(crate) mod heap_error;
mod holes;
mod huge_pages;
pub(super) mod in_use;
pub mod large;
mod layout;
mod map;
pub(crate) mod purge;
mod relocate;
mod runs;
mod scarce;
pub(super) mod slab;
mod tag;
mod thp;
pub(crate) mod usage;

use crate::lanes::direct;
use crate::sys::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::bits::Bits;
use crate::sys::lock::{Guard, Lock};
use huge_pages::SlabThp;
use layout::{CHUNKS_MAX, TAG_CHUNKS, layout};
use purge::Purging;
use scarce::Scarcity;
use slab::{OBJECT_BITS_BYTES, Slab};
pub(super) use tag::{ANY_CACHE, LARGE, is_large_class, is_of_class};
pub use tag::{LANELESS, NO_TAG, Tag};

/// Bytes of a chunk, and its alignment.
pub(super) const CHUNK_BYTES: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };
/// Number of chunks that have a common summary: the longest free run that begins in them.
const SUMMARY_CHUNKS: usize = if cfg!(thiscpu_model) { 64 } else { 1024 };

/// The state of the arena. The first cache line has all that fast paths load.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Arena {
    /// The origin that fast paths count chunks and tags from, or [`POISON_BASE`] to disable them.
    ///
    /// It is [`TAG_CHUNKS`] chunks before chunk 0, and as many tags before the tag of chunk 0. It
    /// is disabled unless tags can be read for all chunks that there can be.
    fast_origin: AtomicUsize,
    /// The address of chunk 0.
    base: AtomicUsize,
    /// Number of chunks that have tags; 0 before the first use.
    len: AtomicUsize,
    /// The address of the tag of chunk 0.
    tags: AtomicUsize,
    /// The address of the `Slab` of chunk 0.
    slabs: AtomicUsize,
    /// The address of the object bits of chunk 0.
    object_bits: AtomicUsize,
    /// The address of the region, and the number of chunks it has room for; metadata comes first.
    start: AtomicUsize,
    limit: AtomicUsize,
    lock: Lock,
    /// Number of chunks that are committed, or holes, or skipped as foreign.
    committed: AtomicUsize,
    /// Whether tags can be read for all chunks that there can be.
    has_all_tags: AtomicBool,
    /// Ends of the committed `Slab`s and object bits, as offsets from `start`.
    slabs_committed: AtomicUsize,
    object_bits_committed: AtomicUsize,
    /// Whether metadata for all chunks is mapped or being mapped, or was when the process forked.
    mapping_metadata: AtomicBool,
    /// One more than the highest chunk ever used.
    high: AtomicUsize,
    used: AtomicUsize,
    used_peak: AtomicUsize,
    /// Number of chunks skipped because of foreign mappings; they count as used forever.
    foreign: AtomicUsize,
    /// Number of free chunks that are not mapped; not too low, under the lock.
    holes: AtomicUsize,
    /// Number of free chunks that may have pages.
    dirty: AtomicUsize,
    purging: Purging,
    scarcity: Scarcity,
    thp: SlabThp,
}

/// Addresses and constants of the arena, for functions in assembly.
#[cfg(not(thiscpu_model))]
pub(crate) mod for_assembly {
    use super::CHUNK_BYTES;
    pub use super::CHUNKS_FROM_ORIGIN;
    pub use super::tag::BITS_OFFSET as TAG_BITS_OFFSET;

    /// Number of low bits of an address that are its offset in a chunk.
    pub const CHUNK_SHIFT: u32 = CHUNK_BYTES.trailing_zeros();
}

/// A base for which no address is in a chunk.
const POISON_BASE: usize = direct::NO_ORIGIN;

#[cfg(not(thiscpu_model))]
const _: () =
    assert!(core::mem::offset_of!(Arena, lock) == 64, "fast paths use the first cache line");
/// Number of chunks from the fast paths' origin to the end of the largest arena.
pub const CHUNKS_FROM_ORIGIN: usize = TAG_CHUNKS + CHUNKS_MAX;
// It is an immediate operand of instructions.
const _: () = assert!(CHUNKS_FROM_ORIGIN <= i32::MAX as usize);

/// The arena of the process.
pub(crate) static ARENA: Arena = Arena::new();

/// Returns the chunk that holds an address, if it is in the arena.
#[inline(always)]
fn chunk_of(address: usize) -> Option<usize> {
    // Acquire: pairs with the Release in `publish_len`. `base` and `tags` were stored before it.
    let len = ARENA.len.load(Acquire);
    let chunk = address.wrapping_sub(ARENA.base.load(Relaxed)) / CHUNK_BYTES;
    (chunk < len).then_some(chunk)
}

/// Returns the tag of the chunk that holds an address.
#[inline(always)]
pub fn tag_of(address: usize) -> Tag {
    match chunk_of(address) {
        // SAFETY: `chunk` is below `len`, and each such chunk has a tag.
        Some(chunk) => tag::decode(unsafe { ARENA.tag_unchecked(chunk) }.load(Relaxed)),
        None => NO_TAG,
    }
}

/// Returns the tag of the chunk that holds an address, for fast paths, if it is above 0.
///
/// It also returns `None` if the address is not aligned like the chunk's objects, while fast frees
/// are disabled, and where address space is scarce. The number of chunks that there can be is a
/// constant, so only one word is loaded before the tag.
#[inline(always)]
pub fn fast_tag_of(address: usize) -> Option<Tag> {
    // Acquire: pairs with the Release in `publish_origin`. Tags are mapped from the origin on, and
    // what came before `disable_fast_free` is seen.
    let origin = ARENA.fast_origin.load(Acquire);
    let number = address.wrapping_sub(origin) / CHUNK_BYTES;
    if number < CHUNKS_FROM_ORIGIN {
        let word = origin + number * size_of::<Tag>();
        // SAFETY: `publish_origin` published an origin from which all `CHUNKS_FROM_ORIGIN` tags are
        // mapped forever. Those before chunk 0 are 0.
        let word = unsafe { &*(word as *const AtomicU32) }.load(Relaxed);
        return tag::decode_fast(word, address);
    }
    None
}

/// Disables or enables fast frees: while they are off, [`fast_tag_of`] returns `None`.
///
/// They are off at first. Calls that have begun may still be fast after this returns.
pub fn disable_fast_free(is_off: bool) {
    // The lock orders this against the first use, which checks `FAST_FREE_OFF`.
    let _guard = ARENA.lock();
    FAST_FREE_OFF.store(is_off, Relaxed);
    ARENA.publish_origin();
}

static FAST_FREE_OFF: AtomicBool = AtomicBool::new(true);

/// Returns the bytes of chunks in use, the peak of that, and the bytes that have pages.
///
/// Purging a free chunk takes its pages away. Pages that a slab in use has lost do not count.
pub fn memory() -> [usize; 3] {
    // Relaxed: these are estimates.
    let used = ARENA.used.load(Relaxed);
    let with_pages = used + ARENA.dirty.load(Relaxed) + ARENA.unused_advised();
    let [used, peak, with_pages] =
        [used, ARENA.used_peak.load(Relaxed), with_pages].map(|chunks| chunks * CHUNK_BYTES);
    [used, peak, with_pages.saturating_sub(free_pages::dropped_bytes())]
}

/// Returns the bytes of chunks in use; an estimate.
pub(super) fn used_bytes() -> usize {
    ARENA.used.load(Relaxed) * CHUNK_BYTES
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
            holes: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            purging: Purging::new(),
            scarcity: Scarcity::new(),
            thp: SlabThp::new(),
        }
    }

    /// Returns the tag word of a chunk.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `chunk` is below `len`.
    #[inline(always)]
    unsafe fn tag_unchecked(&self, chunk: usize) -> &'static AtomicU32 {
        // SAFETY: the tags begin at `tags`, one for each chunk below `len`, mapped forever.
        unsafe { &*((self.tags.load(Relaxed) + chunk * size_of::<Tag>()) as *const AtomicU32) }
    }

    /// Publishes the origin that fast paths find tags by, or disables them.
    ///
    /// They may load the tag of any chunk that there can be, so all of these must be mapped. The
    /// caller holds the lock.
    fn publish_origin(&self) {
        let is_initialized = self.len.load(Relaxed) != 0;
        let is_enabled =
            is_initialized && self.has_all_tags.load(Relaxed) && !FAST_FREE_OFF.load(Relaxed);
        let origin = if is_enabled {
            self.base.load(Relaxed) - TAG_CHUNKS * CHUNK_BYTES
        } else {
            POISON_BASE
        };
        // Release: pairs with the Acquire in `fast_tag_of`.
        self.fast_origin.store(origin, Release);
        if direct::HAS_DIRECT {
            // Release: pairs with the load of free in assembly, whose next loads x86-64 keeps in
            // order.
            direct::MALLOC_TABLE.origin.store(origin, Release);
        }
    }

    fn tag_word(&self, chunk: usize) -> &'static AtomicU32 {
        assert!(chunk < self.len.load(Relaxed));
        // SAFETY: `chunk` is below `len`, as was just asserted.
        unsafe { self.tag_unchecked(chunk) }
    }

    pub(super) fn tag(&self, chunk: usize) -> Tag {
        // Acquire: pairs with the Release in `set_tag`, so the chunk's slab is initialized.
        tag::decode(self.tag_word(chunk).load(Acquire))
    }

    /// Publishes the tag of a chunk with objects of `size`, after its slab was initialized.
    ///
    /// The size matters for tags above 0 only.
    fn set_tag(&self, chunk: usize, tag: Tag, size: usize) {
        // Release: pairs with the Acquire in `tag`.
        self.tag_word(chunk).store(tag::encode(tag, size), Release);
    }

    fn address(&self, chunk: usize) -> usize {
        self.base.load(Relaxed) + chunk * CHUNK_BYTES
    }

    /// Returns the slab, or large block, that begins with a chunk that was ever used.
    pub(super) fn slab(&self, chunk: usize) -> &'static Slab {
        assert!(chunk < self.high.load(Acquire));
        let slabs = self.slabs.load(Relaxed);
        // SAFETY: each chunk has a `Slab`, which is mapped forever if the chunk is below `high`, as
        // was just asserted. Zeros are a valid `Slab`.
        unsafe { &*((slabs + chunk * size_of::<Slab>()) as *const Slab) }
    }

    /// Returns the slab that begins with a chunk, for paths on which the check would be felt.
    ///
    /// # Safety
    ///
    /// The caller guarantees that the chunk has a tag, or had one.
    #[inline(always)]
    unsafe fn slab_unchecked(&self, chunk: usize) -> &'static Slab {
        debug_assert!(chunk < self.high());
        // SAFETY: a chunk that has a tag was used, so it is below `high`, and its `Slab` is mapped
        // forever. A thread that found the tag, or an object there, sees that.
        unsafe { &*((self.slabs.load(Relaxed) + chunk * size_of::<Slab>()) as *const Slab) }
    }

    /// Returns a bit for each object of the slab that begins with a chunk that was ever used.
    fn object_bits(&self, chunk: usize) -> Bits<'static> {
        assert!(chunk < self.high.load(Acquire));
        let words =
            (self.object_bits.load(Relaxed) + chunk * OBJECT_BITS_BYTES) as *const AtomicU64;
        // SAFETY: each chunk has that many words, which are mapped forever if the chunk is below
        // `high`, as was just asserted. Zeros are valid bits.
        Bits(unsafe { core::slice::from_raw_parts(words, OBJECT_BITS_BYTES / 8) })
    }

    fn is_unused(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    pub(super) fn high(&self) -> usize {
        self.high.load(Acquire)
    }

    fn bits(&self, offset: usize) -> Bits<'static> {
        let words = (self.start.load(Relaxed) + offset) as *const AtomicU64;
        // SAFETY: the metadata has a word for each 64 chunks below `len`, mapped forever. Only
        // `Bits` access these words, atomically, and zeros are valid.
        Bits(unsafe { core::slice::from_raw_parts(words, self.len.load(Relaxed) / 64) })
    }

    fn used_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).used)
    }

    /// Returns the bits of chunks that may hold data.
    ///
    /// A used chunk's bit has a meaning only to the thread that has just allocated the chunk.
    fn dirty_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).dirty)
    }

    /// Returns the bits of chunks that have been free and dirty since before this span.
    ///
    /// All of them that are not used are dirty. A used chunk's bit has no meaning.
    fn aged_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).aged)
    }

    fn lock(&self) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.first_in_generation && self.len.load(Relaxed) != 0 {
            // The fork may have come between the two stores of `publish_len`.
            self.publish_len(self.len.load(Relaxed));
            let was_purging = self.recover_in_flight();
            if guard.owner_died || was_purging {
                self.recount();
            }
        }
        guard
    }

    /// Recounts, because a fork in the middle of a change leaves counts that are off.
    fn recount(&self) {
        let high = self.high.load(Relaxed);
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        let foreign = self.foreign.load(Relaxed);
        self.used.store(used.count(0, high).saturating_sub(foreign), Relaxed);
        self.dirty.store(dirty.count_without(used, high), Relaxed);
        self.holes.store(self.unmapped_bits().count_without(used, high), Relaxed);
    }
}
