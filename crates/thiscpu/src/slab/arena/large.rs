//! Large blocks: runs of chunks, for blocks that are too large for slabs.

use super::heap_error::HeapError;
use super::huge_pages::HUGE_PAGE_BYTES;
use super::in_use;
use super::purge;
use super::relocate::{MOVE_ALIGN_BYTES, MOVED_CHUNKS_MIN};
use super::slab::{Shape, Slab};
use super::thp;
pub use super::thp::{Thp, look_if_due, set_thp, thp_mode};
use super::{ARENA, CHUNK_BYTES, LARGE, NO_TAG, Tag, chunk_of, is_large_class, tag_of};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::errno;

/// Number of chunks from which on a block begins at a huge page.
///
/// The chunks before it that this leaves free are less than an eighth of its own.
const ALIGNED_CHUNKS_MIN: usize = 8 * HUGE_PAGE_BYTES / CHUNK_BYTES;

/// Allocates a block, aligned to at least 64 KiB; `None` if there is no memory.
pub fn allocate(bytes: usize, align: usize) -> Option<usize> {
    let _errno = errno::save();
    let (first, chunks) = alloc_chunks(bytes, align)?;
    init(first, chunks);
    Some(ARENA.address(first))
}

/// Allocates a zeroed block, touching only dirty pages of it; `None` if there is no memory.
pub fn allocate_zeroed(bytes: usize, align: usize) -> Option<usize> {
    let _errno = errno::save();
    let (first, chunks) = alloc_chunks(bytes, align)?;
    clear_dirty(first, chunks);
    init(first, chunks);
    Some(ARENA.address(first))
}

fn alloc_chunks(bytes: usize, align: usize) -> Option<(usize, usize)> {
    let chunks = chunks_of(bytes)?;
    let align = align.div_ceil(CHUNK_BYTES).max(1);
    look_if_due();
    // There may be room only at an address that is not that of a huge page.
    let first = huge_page_align(chunks).and_then(|huge| ARENA.alloc(chunks, align.max(huge)));
    let first = first.or_else(|| ARENA.alloc(chunks, align))?;
    thp::begin(first, chunks);
    Some((first, chunks))
}

fn chunks_of(bytes: usize) -> Option<usize> {
    Some(bytes.max(1).checked_next_multiple_of(CHUNK_BYTES)? / CHUNK_BYTES)
}

/// Clears the dirty chunks of those just allocated.
fn clear_dirty(first: usize, chunks: usize) {
    let (dirty, end) = (ARENA.dirty_bits(), first + chunks);
    let mut at = dirty.find(true, first, end);
    while at < end {
        let stop = dirty.find(false, at, end);
        // SAFETY: the chunks were just allocated, so that they are mapped and no one else uses
        // them.
        unsafe {
            core::ptr::write_bytes(ARENA.address(at) as *mut u8, 0, (stop - at) * CHUNK_BYTES)
        };
        at = dirty.find(true, stop, end);
    }
}

fn init(first: usize, chunks: usize) {
    Slab::init(first, 0, 0, 0, Shape { size: chunks * CHUNK_BYTES, chunks, mark: 0 }, LARGE);
}

/// Returns the large block that begins at an address.
fn find(address: usize) -> Option<&'static Slab> {
    let slab = (tag_of(address) == LARGE).then(|| Slab::containing(address)).flatten()?;
    (ARENA.address(slab.first_chunk()) == address).then_some(slab)
}

/// Returns the bytes of the large block that begins at an address, if there is one.
pub fn size(address: usize) -> Option<usize> {
    find(address).map(|slab| slab.size.load(Relaxed))
}

// A large block is in no shard, so its `Slab` has room for the number of its sample.

/// Keeps a number, which is not 0, for the large block that begins at an address.
///
/// Returns whether there is one. Resizing the block in place loses the number.
pub fn set_sample(address: usize, number: u32) -> bool {
    find(address).inspect(|slab| slab.set_shard(number as usize)).is_some()
}

/// Returns the number that was kept for the large block at an address, or 0, and forgets it.
pub fn take_sample(address: usize) -> u32 {
    find(address).map_or(0, Slab::take_shard) as u32
}

/// Returns whether a large object in use begins at an address of a class of large objects.
#[inline(always)]
pub fn is_object_in_use(address: usize) -> bool {
    in_use::is_in_use(address)
}

/// Notes that a large object of a class is in use no longer, for a call that frees it.
///
/// Returns false if no object in use begins at that address.
#[inline(always)]
pub fn end_object_use(address: usize) -> bool {
    in_use::end(address)
}

/// Diagnoses a free of an address at which no block in use begins.
///
/// Returns the error, and the bytes of the block that is, or was, there, or 0.
pub fn error_at(address: usize) -> (HeapError, usize) {
    let Some(chunk) = chunk_of(address).filter(|&chunk| chunk < ARENA.high()) else {
        return (HeapError::InvalidFree, 0);
    };
    // With the lock, a thread that has just freed the block there has freed its chunks too.
    let _guard = ARENA.locked();
    let holds = |slab: &Slab| {
        (slab.first_chunk()..slab.first_chunk() + slab.chunks.load(Relaxed) as usize)
            .contains(&chunk)
    };
    // Only the first chunk of a large block has its tag, or of a slab of a single large object.
    let first = (0..=chunk).rev().find(|&chunk| ARENA.tag(chunk) != NO_TAG);
    let is_large = |tag: Tag| tag == LARGE || is_large_class(tag);
    let around = first
        .filter(|&chunk| is_large(ARENA.tag(chunk)))
        .map(|chunk| ARENA.slab(ARENA.slab(chunk).first_chunk()));
    if let Some(around) = around.filter(|slab| holds(slab)) {
        let is_run = ARENA.tag(around.first_chunk()) == LARGE;
        let error = match (!is_run).then(|| around.object_at(address)).flatten() {
            Some(object) if object.index < around.handed_out() => HeapError::DoubleFree,
            Some(_) => HeapError::InvalidFree,
            None => HeapError::InteriorFree,
        };
        return (error, around.size.load(Relaxed));
    }
    if ARENA.used_bits().has(chunk) {
        // It was skipped as foreign, so it has no metadata.
        return (HeapError::InvalidFree, 0);
    }
    // The metadata of freed chunks stays until they are allocated again.
    let last = ARENA.slab(ARENA.slab(chunk).first_chunk());
    let size = last.size.load(Relaxed);
    let is_start = |start: usize| size != 0 && (address - start).is_multiple_of(size);
    match holds(last) && is_start(ARENA.address(last.first_chunk())) {
        true => (HeapError::DoubleFree, size),
        false => (HeapError::InvalidFree, 0),
    }
}

/// Frees a large block; false if there is none, or if another thread has just freed it.
pub fn free(address: usize) -> bool {
    let _errno = errno::save();
    let is_freed = find(address).is_some_and(Slab::free_large);
    purge::purge_if_due();
    look_if_due();
    is_freed
}

/// Resizes a large block; returns its address, or `None` if it is unchanged.
///
/// It may move, with its pages, if it has 1 MiB or more and grows; its address stays a multiple
/// of `align`. New memory is not cleared.
pub fn resize(address: usize, bytes: usize, align: usize) -> Option<usize> {
    let _errno = errno::save();
    let (slab, wanted) = find(address).zip(chunks_of(bytes))?;
    let (first, chunks) = (slab.first_chunk(), slab.chunks.load(Relaxed) as usize);
    if wanted > chunks {
        return grow(first, chunks, wanted, align).map(|first| ARENA.address(first));
    }
    // Stored before chunks are freed, so that no metadata leads to those.
    init(first, wanted);
    if wanted < chunks {
        let arena = ARENA.locked();
        thp::end(first, wanted..chunks);
        arena.free(first + wanted, chunks - wanted);
        drop(arena);
        purge::purge_if_due();
    }
    Some(address)
}

/// Grows a block from `chunks`; returns its first chunk then.
fn grow(first: usize, chunks: usize, wanted: usize, align: usize) -> Option<usize> {
    if ARENA.grow(first, chunks, wanted).is_some() {
        init(first, wanted);
        thp::grow(first, chunks, wanted);
        return Some(first);
    }
    if chunks < MOVED_CHUNKS_MIN || align > MOVE_ALIGN_BYTES {
        return None;
    }
    // Withdraws slabs' advice first: it would split the block into several mappings, and the holes
    // it leaves would count as advised. The block's own advice is then given again.
    if ARENA.unadvise(first, chunks) {
        thp::grow_advised(first, 0..chunks);
    }
    let publish = |to| {
        // The advice moves with the pages.
        let [before, after] = [first, to].map(|chunk| ARENA.slab(chunk));
        after.set_advised(before.set_advised(false));
        init(to, wanted);
        ARENA.set_tag(first, NO_TAG, 0);
    };
    let to = ARENA.move_grown(first, chunks, wanted, publish)?;
    thp::grow(to, chunks, wanted);
    Some(to)
}

/// Returns the alignment, in chunks, that a block of `chunks` prefers.
fn huge_page_align(chunks: usize) -> Option<usize> {
    (chunks >= ALIGNED_CHUNKS_MIN).then_some(HUGE_PAGE_BYTES / CHUNK_BYTES)
}
