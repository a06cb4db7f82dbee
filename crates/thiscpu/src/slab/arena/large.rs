//! Blocks that are too large for slabs: runs of chunks, each with one block.
//!
//! Large ones ask for huge pages, for the part of them in which whole ones fit, while they live. A block that asks may make two
//! mappings of one, of which a process has 65,530 as a rule, so only so many do. A slab that lay where a block has asked would have
//! 2 MiB for its first object, most of which would count as dropped.

use super::heap_error::HeapError;
use super::huge_pages::HUGE_PAGE_BYTES;
use super::purge;
use super::slab::{Shape, Slab};
use super::{ARENA, CHUNK_BYTES, LARGE, NO_TAG, chunk_of, tag_of};
use crate::sys::Host;
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::errno;
use crate::sys::machine::Machine as _;

/// Blocks of so many chunks ask.
const HUGE_BLOCK_CHUNKS_MIN: usize = 2 * HUGE_PAGE_BYTES / CHUNK_BYTES;
/// Blocks of so many begin with a huge page. Less before them is left over than an eighth of them.
const ALIGNED_CHUNKS_MIN: usize = 8 * HUGE_PAGE_BYTES / CHUNK_BYTES;
/// While there are more such blocks than these no further one asks.
const HUGE_BLOCKS_MAX: usize = 8192;

/// How many blocks there are that are large enough to ask.
static HUGE_BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// The address of a block of so many bytes, aligned to 64 KiB at least. `None` if there is no memory.
pub fn allocate(bytes: usize, align: usize) -> Option<usize> {
    let _errno = errno::save();
    let (first, chunks) = take(bytes, align)?;
    begin(first, chunks);
    Some(ARENA.address(first))
}

/// The same, all zero. Pages that were not used before are not touched.
pub fn allocate_zeroed(bytes: usize, align: usize) -> Option<usize> {
    let _errno = errno::save();
    let (first, chunks) = take(bytes, align)?;
    clear(first, chunks);
    begin(first, chunks);
    Some(ARENA.address(first))
}

fn take(bytes: usize, align: usize) -> Option<(usize, usize)> {
    let chunks = chunks_of(bytes)?;
    let align = align.div_ceil(CHUNK_BYTES).max(1);
    // There may be room only where it does not begin with a huge page.
    let first = huge_page_align(chunks).and_then(|huge| ARENA.alloc(chunks, align.max(huge)));
    let first = first.or_else(|| ARENA.alloc(chunks, align))?;
    advise(first, 0, chunks);
    Some((first, chunks))
}

fn chunks_of(bytes: usize) -> Option<usize> {
    Some(bytes.max(1).checked_next_multiple_of(CHUNK_BYTES)? / CHUNK_BYTES)
}

/// Clears what may hold anything of chunks that were just taken.
fn clear(first: usize, chunks: usize) {
    let (dirty, end) = (ARENA.dirty_bits(), first + chunks);
    let mut at = dirty.find(true, first, end);
    while at < end {
        let stop = dirty.find(false, at, end);
        // SAFETY: the chunks are nobody else's, accessible, and free of objects.
        unsafe {
            core::ptr::write_bytes(ARENA.address(at) as *mut u8, 0, (stop - at) * CHUNK_BYTES)
        };
        at = dirty.find(true, stop, end);
    }
}

fn begin(first: usize, chunks: usize) {
    Slab::init(first, 0, 0, 0, Shape { size: chunks * CHUNK_BYTES, chunks, mark: 0 }, LARGE);
}

/// The large block that begins at an address.
fn find(address: usize) -> Option<&'static Slab> {
    let slab = (tag_of(address) == LARGE).then(|| Slab::containing(address)).flatten()?;
    (ARENA.address(slab.first_chunk()) == address).then_some(slab)
}

/// The bytes of the large block that begins at an address, if one does.
pub fn size(address: usize) -> Option<usize> {
    find(address).map(|slab| slab.size.load(Relaxed))
}

/// What is wrong with freeing an address at which no block is, and the bytes of the block that there is, or was, 0 if there was none.
pub fn error_at(address: usize) -> (HeapError, usize) {
    let Some(chunk) = chunk_of(address).filter(|&chunk| chunk < ARENA.high()) else {
        return (HeapError::InvalidFree, 0);
    };
    // Whoever has just ended the block that was there has given its chunks back by then.
    let _held = ARENA.locked();
    let holds = |slab: &Slab| {
        (slab.first_chunk()..slab.first_chunk() + slab.chunks.load(Relaxed) as usize)
            .contains(&chunk)
    };
    // Of a large block only the first chunk says what it is.
    let first = (0..=chunk).rev().find(|&chunk| ARENA.tag(chunk) != NO_TAG);
    let around = first.filter(|&chunk| ARENA.tag(chunk) == LARGE).map(|chunk| ARENA.slab(chunk));
    if let Some(around) = around.filter(|slab| holds(slab)) {
        return (HeapError::InteriorFree, around.size.load(Relaxed));
    }
    if ARENA.used_bits().has(chunk) {
        // It was passed by, and nothing is known of it.
        return (HeapError::InvalidFree, 0);
    }
    // What is known of chunks stays when they are given back.
    let last = ARENA.slab(ARENA.slab(chunk).first_chunk());
    let size = last.size.load(Relaxed);
    let is_start = |start: usize| size != 0 && (address - start).is_multiple_of(size);
    match holds(last) && is_start(ARENA.address(last.first_chunk())) {
        true => (HeapError::DoubleFree, size),
        false => (HeapError::InvalidFree, 0),
    }
}

/// Ends a large block; false if there is none, or somebody else has just ended it.
pub fn free(address: usize) -> bool {
    let _errno = errno::save();
    let slab = find(address);
    slab.inspect(|slab| unadvise(slab.first_chunk(), slab.chunks.load(Relaxed) as usize, 0));
    let ended = slab.and_then(Slab::free_large);
    ended.inspect(|&chunks| count_freed(chunks, 0));
    purge::purge_if_excess();
    ended.is_some()
}

/// Makes a large block so large where it is, if that can be done. New memory in it may hold anything.
pub fn resize(address: usize, bytes: usize) -> bool {
    let _errno = errno::save();
    let Some((slab, wanted)) = find(address).zip(chunks_of(bytes)) else { return false };
    let chunks = slab.chunks.load(Relaxed) as usize;
    let end = slab.first_chunk() + chunks;
    if wanted > chunks && ARENA.extend(end, wanted - chunks).is_none() {
        return false;
    }
    // Its own first, so that chunks are given back that nothing leads to.
    begin(slab.first_chunk(), wanted);
    if wanted > chunks {
        advise(slab.first_chunk(), chunks, wanted);
    }
    if wanted < chunks {
        unadvise(slab.first_chunk(), chunks, wanted);
        count_freed(chunks, wanted);
        ARENA.free(slab.first_chunk() + wanted, chunks - wanted);
        purge::purge_if_excess();
    }
    true
}

/// What a block of so many chunks is aligned to, if there is room.
fn huge_page_align(chunks: usize) -> Option<usize> {
    (chunks >= ALIGNED_CHUNKS_MIN).then_some(HUGE_PAGE_BYTES / CHUNK_BYTES)
}

/// A block that had `before` chunks, or 0, has more now. Asks for huge pages, but not once more where it has asked before.
fn advise(first: usize, before: usize, chunks: usize) {
    if chunks < HUGE_BLOCK_CHUNKS_MIN {
        return;
    }
    let is_new = before < HUGE_BLOCK_CHUNKS_MIN;
    // Relaxed, here and below: it counts, and orders nothing.
    let others = if is_new {
        HUGE_BLOCKS.fetch_add(1, Relaxed)
    } else {
        HUGE_BLOCKS.load(Relaxed).saturating_sub(1)
    };
    if others >= HUGE_BLOCKS_MAX {
        return;
    }
    let start = match is_new {
        true => ARENA.address(first).next_multiple_of(HUGE_PAGE_BYTES),
        // The one in which it ended is whole now, if any is.
        false => ARENA.address(first + before) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES,
    };
    let end = ARENA.address(first + chunks) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if start < end {
        Host::prefer_huge_pages(start, end - start, true);
    }
}

/// A block of `before` chunks, or what is behind its first few, is about to be given back: that asks no longer, nor does the rest if it is small.
/// Who gives back what is somebody else's by now takes no more than advice from them.
fn unadvise(first: usize, before: usize, chunks: usize) {
    if before >= HUGE_BLOCK_CHUNKS_MIN {
        // What is before is not the block's, nor may be what is behind: a huge page that slabs fill goes on asking.
        let start = match chunks < HUGE_BLOCK_CHUNKS_MIN {
            true => ARENA.address(first).next_multiple_of(HUGE_PAGE_BYTES),
            false => ARENA.address(first + chunks),
        };
        let end = ARENA.address(first + before);
        let end = if ARENA.is_advised(first + before) {
            end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        } else {
            end
        };
        if start < end {
            Host::prefer_huge_pages(start, end - start, false);
        }
    }
}

/// It was given back.
fn count_freed(before: usize, chunks: usize) {
    if before >= HUGE_BLOCK_CHUNKS_MIN && chunks < HUGE_BLOCK_CHUNKS_MIN {
        HUGE_BLOCKS.fetch_add(1_usize.wrapping_neg(), Relaxed);
    }
}
