//! A slab: chunks that hold objects of one cache, and a bit for each object that is free in it.
//!
//! Objects that were never handed out have no bit: they are those from `fresh` on, and are taken in order, so that
//! memory is touched as it is needed. All of it is changed under the lock of the slab's barn. The bits and `fresh` are what
//! counts: how many are free, and which slabs are in the barn's list, a forked child makes anew from those.

use super::bits::Bits;
use super::{ARENA, CHUNK_BYTES, Tag};
use crate::sys::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The smallest object.
pub(crate) const OBJECT_BYTES_MIN: usize = 8;
/// The bytes of the bits of a slab's objects. They are apart from what else is known of a slab, for large blocks have none, and would
/// have a page for each few of them.
pub(super) const OBJECT_BITS_BYTES: usize = CHUNK_BYTES / OBJECT_BYTES_MIN / 8;

/// What is known of the slab, or of the large block, that begins with a chunk. In one line, because who frees many objects of as many slabs
/// looks at as many of these.
#[repr(C, align(64))]
pub(crate) struct Slab {
    /// The cache that it belongs to, 0 for a large block, and the node: one word, because who looks without the barn's lock
    /// must not take one slab's cache and the next one's node for a slab of its own.
    owner_node: AtomicU64,
    /// The chunk it begins with: this chunk is one of its chunks.
    first_chunk: AtomicU32,
    pub(super) chunks: AtomicU32,
    /// The bytes of an object, or of the large block.
    pub(super) size: AtomicUsize,
    objects: AtomicU32,
    fresh: AtomicU32,
    free: AtomicU32,
    /// No word before has a bit.
    first_word: AtomicU32,
    /// The shard of the barn whose list it is in when an object is free.
    shard: AtomicU32,
    /// In the barn's list, as chunk numbers plus one.
    pub(crate) next: AtomicU32,
    /// The same; or how far the end of a slab has come whose objects are constructed.
    pub(crate) previous: AtomicU32,
}

/// In place of a slab's predecessor: its objects wait to be destroyed.
const RETIRED: u32 = u32::MAX;
/// The same: some thread has the slab for itself, and destroys them.
const ENDING: u32 = u32::MAX - 1;

/// The shape of a cache's slabs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The bytes of an object.
    pub(crate) size: usize,
    /// The chunks of a slab.
    pub(crate) chunks: usize,
    /// From an object to its mark; not 0 if objects stay constructed.
    pub(crate) mark: usize,
}

impl Shape {
    /// Few chunks, of which at most a sixteenth is left over.
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

    pub(crate) const fn objects(self) -> usize {
        self.chunks * CHUNK_BYTES / self.size
    }
}

/// Where an object is.
pub(crate) struct ObjectRef {
    pub(crate) slab: &'static Slab,
    pub(crate) index: usize,
}

/// An object that was free in its slab.
#[derive(Clone, Copy)]
pub(crate) struct TakenObject {
    pub(crate) object: usize,
    /// Whether it was never handed out since the slab began.
    pub(crate) is_fresh: bool,
}

/// How many chunks say what they are: of a large block only the first, which may be one of many thousands.
fn tagged(chunks: usize, tag: Tag) -> usize {
    if tag == super::LARGE { 1 } else { chunks }
}

const fn owner_node(owner: u32, node: usize) -> u64 {
    (owner as u64) << 32 | node as u64
}

impl Slab {
    /// The slab, or large block, that an address is in, if it is in one.
    pub(crate) fn containing(address: usize) -> Option<&'static Slab> {
        let chunk = super::chunk_of(address).filter(|&chunk| chunk < ARENA.high())?;
        if ARENA.tag(chunk) == super::NO_TAG {
            return None;
        }
        Some(ARENA.slab(ARENA.slab(chunk).first_chunk.load(Relaxed) as usize))
    }

    /// Makes a slab, or a large block, of chunks that were just taken.
    pub(crate) fn init(
        first: usize,
        owner: u32,
        node: usize,
        shard: usize,
        shape: Shape,
        tag: Tag,
    ) -> &'static Slab {
        let slab = ARENA.slab(first);
        slab.chunks.store(shape.chunks as u32, Relaxed);
        slab.size.store(shape.size, Relaxed);
        slab.objects.store(shape.objects() as u32, Relaxed);
        slab.clear_bits(first);
        slab.fresh.store(0, Relaxed);
        slab.free.store(shape.objects() as u32, Relaxed);
        slab.first_word.store(0, Relaxed);
        slab.set_shard(shard);
        slab.previous.store(0, Relaxed);
        slab.owner_node.store(owner_node(owner, node), Relaxed);
        // The first of them comes last: a child that is forked in between finds a whole slab, or none.
        for chunk in (first..first + tagged(shape.chunks, tag)).rev() {
            ARENA.slab(chunk).first_chunk.store(first as u32, Relaxed);
            // Last: whoever finds the tag finds what is above.
            ARENA.set_tag(chunk, tag);
        }
        slab
    }

    /// Clears what its objects before have left.
    fn clear_bits(&self, chunk: usize) {
        let used = self.fresh.load(Relaxed) as usize;
        ARENA.object_bits(chunk).put(0, used, false);
    }

    /// Gives the chunks back.
    pub(crate) fn free_chunks(&self) {
        let (first, chunks) = (self.first_chunk(), self.chunks.load(Relaxed) as usize);
        for chunk in first..first + chunks {
            ARENA.set_tag(chunk, super::NO_TAG);
        }
        ARENA.free(first, chunks);
    }

    /// The same for a large block: how many chunks it had; `None` if somebody else has just done it.
    pub(super) fn free_large(&self) -> Option<usize> {
        let arena = ARENA.locked();
        let first = self.first_chunk();
        let is_mine = ARENA.tag(first) == super::LARGE;
        is_mine.then(|| {
            let chunks = self.chunks.load(Relaxed) as usize;
            ARENA.set_tag(first, super::NO_TAG);
            arena.free(first, chunks);
            chunks
        })
    }

    pub(crate) fn first_chunk(&self) -> usize {
        self.first_chunk.load(Relaxed) as usize
    }

    pub(crate) fn owner(&self) -> u32 {
        (self.owner_node.load(Relaxed) >> 32) as u32
    }

    /// Whether it is that cache's and on that node. Who has the lock of the barn in question may rest on it: there it begins
    /// and ends under that lock only.
    pub(crate) fn is_of(&self, owner: u32, node: usize) -> bool {
        self.owner_node.load(Relaxed) == owner_node(owner, node)
    }

    pub(crate) fn node(&self) -> usize {
        self.owner_node.load(Relaxed) as u32 as usize
    }

    pub(crate) fn shard(&self) -> usize {
        self.shard.load(Relaxed) as usize
    }

    /// Under the lock of the barn, while it is in no list.
    pub(crate) fn set_shard(&self, shard: usize) {
        self.shard.store(shard as u32, Relaxed);
    }

    fn bits(&self) -> Bits<'static> {
        ARENA.object_bits(self.first_chunk())
    }

    pub(crate) fn objects(&self) -> usize {
        self.objects.load(Relaxed) as usize
    }

    pub(crate) fn free(&self) -> usize {
        self.free.load(Relaxed) as usize
    }

    /// Of how many the first were ever handed out.
    pub(crate) fn used(&self) -> usize {
        self.fresh.load(Relaxed) as usize
    }

    /// How many are not free in it; about, where others change it.
    pub(crate) fn outside(&self) -> usize {
        self.objects().saturating_sub(self.free())
    }

    /// How many are free, from the bits.
    pub(crate) fn recount(&self) {
        let fresh = self.fresh.load(Relaxed) as usize;
        let free = self.bits().count(0, fresh) + self.objects() - fresh;
        self.free.store(free as u32, Relaxed);
        self.first_word.store(0, Relaxed);
    }

    /// The object at an address of this slab, if one begins there.
    pub(crate) fn object_at(&'static self, address: usize) -> Option<ObjectRef> {
        // A slab has less than 4 GiB, and division is faster with fewer bits.
        let offset = (address - ARENA.address(self.first_chunk())) as u32;
        let size = self.size.load(Relaxed) as u32;
        let index = (offset / size) as usize;
        (offset.is_multiple_of(size) && index < self.objects())
            .then_some(ObjectRef { slab: self, index })
    }

    pub(crate) fn object_address(&self, index: usize) -> usize {
        ARENA.address(self.first_chunk()) + index * self.size.load(Relaxed)
    }

    /// Takes up to `most` free objects; `each` is called with each. Bits go first, so that a fork loses
    /// objects and doubles none.
    pub(crate) fn take_free(&self, most: usize, mut each: impl FnMut(TakenObject)) {
        let mut each =
            |index, is_fresh| each(TakenObject { object: self.object_address(index), is_fresh });
        let wanted = most.min(self.free());
        let mut left = wanted;
        let fresh = self.fresh.load(Relaxed) as usize;
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

    /// Says that its objects wait to be destroyed. It is in no list by then, and ends without being in one again.
    pub(crate) fn retire(&self) {
        self.previous.store(RETIRED, Relaxed);
    }

    /// Says that a thread has it for itself, and destroys them.
    pub(crate) fn begin_destroy(&self) {
        self.previous.store(ENDING, Relaxed);
    }

    /// Whether its objects wait to be destroyed.
    pub(crate) fn is_retired(&self) -> bool {
        self.previous.load(Relaxed) == RETIRED
    }

    /// The same, or are being destroyed: then all of them came back.
    pub(crate) fn is_retired_or_ending(&self) -> bool {
        self.is_retired() || self.previous.load(Relaxed) == ENDING
    }

    /// Whether an object is not free.
    pub(crate) fn is_outside(&self, index: usize) -> bool {
        index < self.used() && !self.bits().has(index)
    }

    /// Takes an object back; false if it is free.
    pub(crate) fn put(&self, index: usize) -> bool {
        if index >= self.fresh.load(Relaxed) as usize || !self.bits().set(index) {
            return false;
        }
        let word = self.first_word.load(Relaxed).min(index as u32 / 64);
        self.first_word.store(word, Relaxed);
        self.free.store(self.free() as u32 + 1, Relaxed);
        true
    }
}
