//! The layout of the arena's region: where its metadata and its chunks are.

use super::slab::{OBJECT_BITS_BYTES, Slab};
use super::{CHUNK_BYTES, SUMMARY_CHUNKS, Tag};
use crate::sys::Host;
use crate::sys::machine::Machine as _;

/// Number of chunks that the largest arena has room for.
pub(super) const CHUNKS_MAX: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 24 };
pub(super) const CHUNKS_MIN: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 8 };
/// Number of chunks, 64 GiB, from which on an arena has the tag space of the largest one.
const CHUNKS_ROOMY: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 20 };
/// Address space that must be free for all tags, 64 MiB, to be mapped in advance.
const TAGS_ROOM_BYTES: usize = 4 << 30;
/// The largest page size of these machines.
pub(super) const PAGE_MAX: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };

/// Number of bitmaps with a bit for each chunk.
const BITMAPS: usize = 5;
/// Number of parts of the metadata that are mapped for all chunks at once.
pub(super) const METADATA_PARTS: usize = 2 + BITMAPS;

/// Offsets of the parts of a region, which begins with the max runs.
pub(super) struct Layout {
    pub(super) used: usize,
    pub(super) dirty: usize,
    pub(super) aged: usize,
    pub(super) unmapped: usize,
    pub(super) kept: usize,
    pub(super) tags: usize,
    pub(super) slabs: usize,
    pub(super) object_bits: usize,
    pub(super) chunks: usize,
}

pub(super) const fn layout(chunks: usize) -> Layout {
    let bits = to_page(chunks / 8);
    let used = to_page(chunks.div_ceil(SUMMARY_CHUNKS) * size_of::<u32>());
    let slabs = used + BITMAPS * bits;
    let object_bits = slabs + to_page(chunks * size_of::<Slab>());
    let tags = object_bits + to_page(chunks * OBJECT_BITS_BYTES);
    Layout {
        used,
        dirty: used + bits,
        aged: used + 2 * bits,
        unmapped: used + 3 * bits,
        kept: used + 4 * bits,
        tags,
        slabs,
        object_bits,
        chunks: tags + if chunks >= CHUNKS_ROOMY { TAGS_BYTES } else { tags_bytes(chunks) },
    }
}

impl Layout {
    /// Returns the parts to be mapped so that `to` chunks have tags, where `from` have.
    pub(super) const fn metadata(
        &self,
        from: usize,
        to: usize,
    ) -> [(usize, usize); METADATA_PARTS] {
        let max_runs = if from == 0 { (0, self.used) } else { (0, 0) };
        let bits = (to_page(from / 8), to_page(to / 8));
        let tags = (if from == 0 { 0 } else { tags_bytes(from) }, tags_bytes(to));
        [
            max_runs,
            (self.used + bits.0, self.used + bits.1),
            (self.dirty + bits.0, self.dirty + bits.1),
            (self.aged + bits.0, self.aged + bits.1),
            (self.unmapped + bits.0, self.unmapped + bits.1),
            (self.kept + bits.0, self.kept + bits.1),
            (self.tags + tags.0, self.tags + tags.1),
        ]
    }

    /// Maps zeros for the tags of all chunks that there can be, where `from` have tags.
    ///
    /// Returns whether fast paths may load any tag. They may not where address space is scarce,
    /// because these mappings would take it from other uses.
    pub(super) fn map_all_tags(&self, start: usize, from: usize) -> bool {
        let missing = (self.tags + tags_bytes(from), self.tags + TAGS_BYTES);
        if self.chunks < missing.1 {
            return false;
        }
        let map = || Host::map_zeros_at(start + missing.0, size(&missing));
        size(&missing) == 0
            || (Host::find_gap(TAGS_ROOM_BYTES, CHUNK_BYTES).is_ok() && map().is_ok())
    }
}

/// Number of chunks that the tags of the largest arena fill.
///
/// Fast paths count chunks and tags from as many before chunk 0, where tags are 0. So one origin
/// leads from an address to its tag, and the instructions need no displacement.
pub(super) const TAG_CHUNKS: usize = CHUNKS_MAX * size_of::<Tag>() / CHUNK_BYTES + 1;
/// Distance from the tags to chunk 0, except in small arenas.
const TAGS_BYTES: usize = TAG_CHUNKS * CHUNK_BYTES;
const _: () = assert!(tags_bytes(CHUNKS_MAX) <= TAGS_BYTES && TAGS_BYTES.is_multiple_of(PAGE_MAX));

/// Returns the bytes of the tags of `chunks` chunks, with those before chunk 0.
const fn tags_bytes(chunks: usize) -> usize {
    to_page((TAG_CHUNKS + chunks) * size_of::<Tag>())
}

pub(super) const fn to_page(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_MAX)
}

pub(super) fn size(part: &(usize, usize)) -> usize {
    part.1 - part.0
}

/// Maps all parts, or none.
pub(super) fn map_all(start: usize, parts: &[(usize, usize)]) -> Result<(), i32> {
    for (done, part) in parts.iter().enumerate() {
        if size(part) == 0 {
            continue;
        }
        if let Err(error) = Host::map_at(start + part.0, size(part)) {
            for part in parts[..done].iter().filter(|part| size(part) > 0) {
                // SAFETY: this function has just mapped the part, and no one else knows of it.
                unsafe { Host::unmap(start + part.0, size(part)) };
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Maps the parts that a thread of the parent had not mapped when this process forked.
pub(super) fn map_missing(start: usize, parts: &[(usize, usize)]) -> Result<(), i32> {
    for part in parts.iter().filter(|part| size(part) > 0) {
        match Host::map_at(start + part.0, size(part)) {
            Err(libc::EEXIST) if Host::is_mapped(start + part.0, size(part)) => {}
            mapped => mapped?,
        }
    }
    Ok(())
}
