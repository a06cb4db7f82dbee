//! Slabs: chunks that hold objects of one cache, with a bit for each free object.
//!
//! Objects that were never handed out have no bit. They are those from index `fresh` on, and are
//! taken in order, so that memory is touched only when needed. All fields are changed under the
//! lock of the node slabs. The bits and `fresh` are authoritative: from them, a forked child
//! recounts the free objects and rebuilds the lists.

use super::free_pages::FreePages;
use super::in_use::InUse;
use super::{ARENA, CHUNK_BYTES, NO_TAG, Tag, thp};
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sys::bits::Bits;

pub(crate) const OBJECT_BYTES_MIN: usize = 8;
/// Bytes of the bits of a chunk's objects.
///
/// They are apart from `Slab`, because large blocks have none and would waste a page for each few
/// of them.
pub(super) const OBJECT_BITS_BYTES: usize = CHUNK_BYTES / OBJECT_BYTES_MIN / 8;

/// The metadata of the slab, or the large block, that begins with a chunk.
///
/// It fills one cache line, because a thread that frees objects of many slabs reads as many of
/// these.
#[repr(C, align(64))]
pub(crate) struct Slab {
    /// The owner number of the cache, 0 for a large block, and the node.
    ///
    /// One word, so that a thread without the lock cannot combine the cache of one slab with the
    /// node of the next.
    owner_node: AtomicU64,
    /// The first chunk of the slab that this chunk is part of.
    first_chunk: AtomicU32,
    pub(super) chunks: AtomicU32,
    /// Bytes of an object, or of the large block.
    pub(super) size: AtomicUsize,
    objects: AtomicU32,
    fresh: AtomicU32,
    free: AtomicU32,
    /// No bit is set in a word before this one.
    first_word: AtomicU32,
    /// The shard whose list the slab is in while one of its objects is free.
    ///
    /// For a large block, the number of its sample in the heap profile, or 0.
    shard: AtomicU32,
    /// The next slab in the list, as its first chunk plus one.
    ///
    /// A large block is in no list. Its word says whether the block is advised to use huge pages.
    pub(crate) next: AtomicU32,
    /// The previous slab in the list, as its first chunk plus one; or [`RETIRED`] or [`ENDING`].
    pub(crate) previous: AtomicU32,
    /// Whether the slab is one of large objects and was zero when it was initialized.
    was_zero: AtomicBool,
    /// Where large objects in use begin in this chunk.
    pub(super) in_use: InUse,
    pub(super) free_pages: FreePages,
}

/// The most chunks of a slab of large objects, unless one object takes more.
const LARGE_CHUNKS_MAX: usize = 31;
/// The part of a slab of large objects that may be wasted at its end, if that is possible.
const LARGE_TAIL_DIVISOR: usize = 128;

/// Stored as the previous slab: the slab's objects await destruction.
const RETIRED: u32 = u32::MAX;
/// Stored as the previous slab: a thread has taken the slab and destroys its objects.
const ENDING: u32 = u32::MAX - 1;

/// Returns the bytes at the end of `chunks` chunks that objects of `size` leave unused.
const fn tail(size: usize, chunks: usize) -> usize {
    chunks * CHUNK_BYTES % size
}

/// The size of a cache's objects and slabs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) size: usize,
    pub(crate) chunks: usize,
    /// Offset of an object's mark; not 0 if objects stay constructed.
    pub(crate) mark: usize,
}

impl Shape {
    /// Picks the fewest chunks, up to 16, that hold 8 objects and waste at most a sixteenth.
    pub(crate) const fn of(size: usize) -> Shape {
        let mut chunks = 1;
        while chunks < 16 {
            let bytes = chunks * CHUNK_BYTES;
            if bytes >= 8 * size && bytes % size <= bytes / 16 {
                return Shape { size, chunks, mark: 0 };
            }
            chunks += 1;
        }
        let chunks = if 16 * CHUNK_BYTES >= size { 16 } else { size.div_ceil(CHUNK_BYTES) };
        Shape { size, chunks, mark: 0 }
    }

    /// Picks the fewest chunks, up to 31, that waste at most 1/128 at their end.
    ///
    /// Without such a number, picks the one that wastes the smallest share. A slab of large objects
    /// may hold only one of them.
    pub(crate) const fn of_large(size: usize) -> Shape {
        let mut best = size.div_ceil(CHUNK_BYTES);
        let mut chunks = best;
        while tail(size, best) * LARGE_TAIL_DIVISOR > best * CHUNK_BYTES
            && chunks < LARGE_CHUNKS_MAX
        {
            chunks += 1;
            // Compares the tails' shares of their slabs without a division.
            if tail(size, chunks) * best < tail(size, best) * chunks {
                best = chunks;
            }
        }
        Shape { size, chunks: best, mark: 0 }
    }

    pub(crate) const fn objects(self) -> usize {
        self.chunks * CHUNK_BYTES / self.size
    }
}

/// An object, by its slab and index.
pub(crate) struct ObjectRef {
    pub(crate) slab: &'static Slab,
    pub(crate) index: usize,
}

/// An object just taken from its slab.
#[derive(Clone, Copy)]
pub(crate) struct TakenObject {
    pub(crate) object: usize,
    /// Whether it was never handed out since the slab was initialized.
    pub(crate) is_fresh: bool,
    /// Whether it is large and all zero.
    pub(crate) is_zero: bool,
}

/// Returns how many chunks of a slab, or of a large block, get the tag.
///
/// A large block may have thousands, so only the first one gets it. A slab of a single large object
/// is treated alike: no object begins in its other chunks.
fn tagged(chunks: usize, objects: usize, tag: Tag) -> usize {
    let has_one_block = tag == super::LARGE || (super::is_large_class(tag) && objects == 1);
    if has_one_block { 1 } else { chunks }
}

const fn owner_node(owner: u32, node: usize) -> u64 {
    (owner as u64) << 32 | node as u64
}

impl Slab {
    /// Returns the slab, or large block, that holds an address, if there is one.
    pub(crate) fn containing(address: usize) -> Option<&'static Slab> {
        let chunk = super::chunk_of(address).filter(|&chunk| chunk < ARENA.high())?;
        if ARENA.tag(chunk) == NO_TAG {
            return None;
        }
        Some(ARENA.slab(ARENA.slab(chunk).first_chunk.load(Relaxed) as usize))
    }

    /// Initializes a slab, or a large block, in chunks just allocated.
    pub(crate) fn init(
        first: usize,
        owner: u32,
        node: usize,
        shard: usize,
        shape: Shape,
        tag: Tag,
    ) -> &'static Slab {
        if tag == super::ANY_CACHE {
            ARENA.keep(first, shape.chunks);
        }
        let slab = ARENA.slab(first);
        slab.chunks.store(shape.chunks as u32, Relaxed);
        slab.size.store(shape.size, Relaxed);
        slab.objects.store(shape.objects() as u32, Relaxed);
        // Clears the bits that the chunk's previous slab left.
        ARENA.object_bits(first).put(0, slab.handed_out(), false);
        slab.fresh.store(0, Relaxed);
        slab.free.store(shape.objects() as u32, Relaxed);
        slab.first_word.store(0, Relaxed);
        slab.set_shard(shard);
        slab.previous.store(0, Relaxed);
        let was_zero = super::is_large_class(tag) && ARENA.is_zero(first, shape.chunks);
        slab.was_zero.store(was_zero, Relaxed);
        slab.owner_node.store(owner_node(owner, node), Relaxed);
        // The first chunk comes last, so that a child forked in between finds a complete slab, or
        // none.
        for chunk in (first..first + tagged(shape.chunks, shape.objects(), tag)).rev() {
            ARENA.slab(chunk).first_chunk.store(first as u32, Relaxed);
            // Last: `set_tag` is a Release store, so a thread that finds the tag finds the stores
            // above.
            ARENA.set_tag(chunk, tag, shape.size);
        }
        slab
    }

    /// Returns the slab's chunks to the arena.
    pub(crate) fn free_chunks(&self) {
        self.forget_dropped_pages();
        let (first, chunks) = (self.first_chunk(), self.chunks.load(Relaxed) as usize);
        for chunk in first..first + tagged(chunks, self.objects(), ARENA.tag(first)) {
            ARENA.set_tag(chunk, NO_TAG, 0);
        }
        ARENA.free(first, chunks);
    }

    /// Frees a large block; returns false if another thread has just freed it.
    pub(super) fn free_large(&self) -> bool {
        let arena = ARENA.locked();
        let first = self.first_chunk();
        let is_mine = ARENA.tag(first) == super::LARGE;
        if is_mine {
            let chunks = self.chunks.load(Relaxed) as usize;
            thp::end(first, 0..chunks);
            ARENA.set_tag(first, NO_TAG, 0);
            arena.free(first, chunks);
        }
        is_mine
    }

    /// Returns whether a large block is advised to use huge pages.
    pub(super) fn is_advised(&self) -> bool {
        // Large blocks are in no list.
        self.next.load(Relaxed) != 0
    }

    /// Notes whether a large block is advised; returns whether it was.
    pub(super) fn set_advised(&self, is_advised: bool) -> bool {
        self.next.swap(u32::from(is_advised), Relaxed) != 0
    }

    pub(crate) fn first_chunk(&self) -> usize {
        self.first_chunk.load(Relaxed) as usize
    }

    pub(crate) fn owner(&self) -> u32 {
        (self.owner_node.load(Relaxed) >> 32) as u32
    }

    /// Returns whether the slab is one of that cache on that node.
    ///
    /// The answer is reliable for a thread that holds the lock of those node slabs, because such
    /// slabs begin and end under that lock.
    pub(crate) fn is_of(&self, owner: u32, node: usize) -> bool {
        self.owner_node.load(Relaxed) == owner_node(owner, node)
    }

    pub(crate) fn node(&self) -> usize {
        self.owner_node.load(Relaxed) as u32 as usize
    }

    pub(crate) fn shard(&self) -> usize {
        self.shard.load(Relaxed) as usize
    }

    /// Sets the shard, under the lock of the node slabs, while the slab is in no list.
    pub(crate) fn set_shard(&self, shard: usize) {
        self.shard.store(shard as u32, Relaxed);
    }

    /// Sets the shard to 0 and returns what it was: of two threads, one gets it.
    pub(super) fn take_shard(&self) -> usize {
        // Relaxed: the number alone is passed on.
        self.shard.swap(0, Relaxed) as usize
    }

    pub(super) fn bits(&self) -> Bits<'static> {
        ARENA.object_bits(self.first_chunk())
    }

    pub(crate) fn objects(&self) -> usize {
        self.objects.load(Relaxed) as usize
    }

    pub(crate) fn free(&self) -> usize {
        self.free.load(Relaxed) as usize
    }

    /// Returns how many objects, the first ones, were ever handed out.
    pub(crate) fn handed_out(&self) -> usize {
        self.fresh.load(Relaxed) as usize
    }

    /// Returns how many objects are not free in the slab; an estimate without the lock.
    pub(crate) fn outside(&self) -> usize {
        self.objects().saturating_sub(self.free())
    }

    pub(crate) fn recount(&self) {
        let fresh = self.handed_out();
        let free = self.bits().count(0, fresh) + self.objects() - fresh;
        self.free.store(free as u32, Relaxed);
        self.first_word.store(0, Relaxed);
    }

    /// Returns the object that begins at an address of this slab, if one does.
    pub(crate) fn object_at(&'static self, address: usize) -> Option<ObjectRef> {
        // A slab has less than 4 GiB, and dividing 32 bits is faster.
        let offset = (address - ARENA.address(self.first_chunk())) as u32;
        let size = self.size.load(Relaxed) as u32;
        let index = (offset / size) as usize;
        (offset.is_multiple_of(size) && index < self.objects())
            .then_some(ObjectRef { slab: self, index })
    }

    pub(crate) fn object_address(&self, index: usize) -> usize {
        ARENA.address(self.first_chunk()) + index * self.size.load(Relaxed)
    }

    /// Takes up to `most` free objects, and calls `each` for each of them.
    ///
    /// Bits are cleared before that, so that a fork loses objects but never duplicates one.
    pub(crate) fn take_free(&self, most: usize, mut each: impl FnMut(TakenObject)) {
        let was_zero = self.was_zero.load(Relaxed);
        let mut each = |index, is_fresh| {
            let object = self.object_address(index);
            each(TakenObject { object, is_fresh, is_zero: is_fresh && was_zero });
        };
        let wanted = most.min(self.free());
        let mut left = wanted;
        let fresh = self.handed_out();
        let mut word = self.first_word.load(Relaxed) as usize;
        while left > 0 && word * 64 < fresh {
            let mut taken = self.bits().take(word, left);
            left -= taken.count_ones() as usize;
            while taken != 0 {
                each(word * 64 + taken.trailing_zeros() as usize, false);
                taken &= taken - 1;
            }
            if left > 0 {
                word += 1;
            }
        }
        self.first_word.store(word as u32, Relaxed);
        self.fresh.store((fresh + left) as u32, Relaxed);
        (fresh..fresh + left).for_each(|index| each(index, true));
        self.free.store((self.free() - wanted) as u32, Relaxed);
    }

    /// Marks the slab as retired. It is in no list, and will be freed without being in one again.
    pub(crate) fn retire(&self) {
        self.previous.store(RETIRED, Relaxed);
    }

    /// Marks the slab as taken by a thread that destroys its objects.
    pub(crate) fn begin_destroy(&self) {
        self.previous.store(ENDING, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.previous.load(Relaxed) == RETIRED
    }

    /// Returns whether all objects have come back, and await destruction or are being destroyed.
    pub(crate) fn is_retired_or_ending(&self) -> bool {
        self.is_retired() || self.previous.load(Relaxed) == ENDING
    }

    pub(crate) fn is_outside(&self, index: usize) -> bool {
        index < self.handed_out() && !self.bits().has(index)
    }

    /// Takes an object back; returns false if it is free.
    pub(crate) fn put(&self, index: usize) -> bool {
        if index >= self.handed_out() || !self.bits().set(index) {
            return false;
        }
        let word = self.first_word.load(Relaxed).min(index as u32 / 64);
        self.first_word.store(word, Relaxed);
        self.free.store(self.free() as u32 + 1, Relaxed);
        true
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// Metadata of a chunk: its `Slab` and its object bits.
    const METADATA_BYTES: usize = size_of::<Slab>() + OBJECT_BITS_BYTES;

    #[test]
    fn large_shapes_waste_little_at_any_size() {
        let mut before = 32 * 1024;
        for (doubling, step) in (15..22).flat_map(|doubling| (1..=16).map(move |n| (doubling, n))) {
            let size = (16 + step) << (doubling - 4);
            let shape = Shape::of_large(size);
            let bytes = shape.chunks * CHUNK_BYTES;
            assert!(shape.chunks <= LARGE_CHUNKS_MAX || shape.objects() == 1, "{shape:?}");
            assert!(tail(size, shape.chunks) * LARGE_TAIL_DIVISOR <= bytes, "{shape:?}");
            assert!(size < 1 << 20 || shape.objects() == 1, "{shape:?}");
            // The smallest block of a class that has 16 steps in each doubling.
            let used = shape.objects() * (before + 1);
            let share = used * 1000 / (bytes + shape.chunks * METADATA_BYTES);
            assert!(share >= 920, "{size}: {share} of 1,000 bytes are usable");
            before = size;
        }
        assert_eq!(before, 4 << 20);
    }
}
