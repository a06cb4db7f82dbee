//! Node slabs: the slabs of a cache on one NUMA node, as the kernel's `kmem_cache_node`.
//!
//! Slabs with a free object are in a list, one list for each shard. A slab whose objects are all
//! allocated is in no list, and a slab whose objects are all free returns its chunks to the arena.
//! If a process forks while a thread changes the lists and counts, the child rebuilds them from the
//! slabs' bits.

use core::ops::Range;

use super::cache_info::CacheInfo;
use super::large_share::BARNS_PER_NODE;
use crate::slab::arena::heap_error::HeapError;
use crate::slab::arena::slab::{ObjectRef, Slab, TakenObject};
use crate::slab::arena::{ANY_CACHE, ARENA, LARGE, NO_TAG, Tag};
use crate::slab::lane::sheaf::Sheaf;
use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::{Guard, Lock};

/// Number of shards of the slabs on a node: one for the lanes of each barn.
///
/// So lanes of two barns do not fill adjacent objects, which the prefetcher of one CPU would fetch
/// from the other's cache.
const SHARDS: usize = BARNS_PER_NODE;
/// Slabs of a node after which small slabs of one shard are placed in extents of its own.
const SLABS_BEFORE_EXTENTS: usize = 8;
const EXTENT_SLAB_CHUNKS_MAX: usize = 4;

#[derive(Default)]
#[repr(align(64))]
pub(crate) struct NodeSlabs {
    lock: Lock,
    /// The first slab of each shard with a free object, as its first chunk plus one.
    partial: [AtomicU32; SHARDS],
    /// The chunk behind the last slab placed in an extent of each shard; only a hint.
    extent_next: [AtomicU32; SHARDS],
    /// The first retired slab, whose constructed objects await destruction.
    ///
    /// One object of a retired slab counts as allocated until then, so that the cache does not
    /// count as empty.
    retired: AtomicU32,
    slabs: AtomicUsize,
}

impl NodeSlabs {
    pub(super) fn slabs(&self) -> usize {
        self.slabs.load(Relaxed)
    }

    /// Returns whether a thread has the lock; an estimate.
    pub(super) fn is_busy(&self) -> bool {
        self.lock.is_held()
    }

    pub(super) fn lock(&self, node: usize, info: CacheInfo) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.owner_died {
            self.rebuild_lists(node, info);
        }
        guard
    }

    pub(super) fn wait_for_unlock(&self, node: usize, info: CacheInfo) {
        drop(self.lock(node, info));
    }

    fn rebuild_lists(&self, node: usize, info: CacheInfo) {
        self.partial.iter().for_each(|first| first.store(0, Relaxed));
        self.retired.store(0, Relaxed);
        self.slabs.store(0, Relaxed);
        for slab in slabs_with_tag(info).filter(|slab| slab.is_of(info.owner, node)) {
            slab.recount();
            slab.recount_dropped_pages(info.tag);
            if slab.free() == slab.objects() {
                // The fork came while its last object was returned or its first was taken.
                slab.free_chunks();
                continue;
            }
            self.slabs.store(self.slabs() + 1, Relaxed);
            if slab.is_retired() {
                self.push_retired(slab);
            } else if slab.free() > 0 && !slab.is_retired_or_ending() {
                // An ending slab stays with the thread that destroys its objects. That may be this
                // thread, because a destructor can fork. If it is a thread of the parent, the slab
                // is lost to this process.
                self.link(slab);
            }
        }
    }

    fn push_retired(&self, slab: &Slab) {
        slab.retire();
        slab.next.store(self.retired.load(Relaxed), Relaxed);
        self.retired.store(slab.first_chunk() as u32 + 1, Relaxed);
    }

    /// Returns whether a slab is retired; an estimate.
    pub(super) fn has_retired(&self) -> bool {
        self.retired.load(Relaxed) != 0
    }

    /// Takes a retired slab, whose objects the caller is to destroy.
    pub(super) fn take_retired(&self, node: usize, info: CacheInfo) -> Option<&'static Slab> {
        let _guard = self.lock(node, info);
        let slab = ARENA.slab((self.retired.load(Relaxed) as usize).checked_sub(1)?);
        slab.begin_destroy();
        self.retired.store(slab.next.load(Relaxed), Relaxed);
        Some(slab)
    }

    /// Frees a slab taken by `take_retired` if all objects are destroyed, or retires it again.
    pub(crate) fn finish_retired(
        &self,
        slab: &'static Slab,
        is_done: bool,
        node: usize,
        info: CacheInfo,
    ) {
        let _guard = self.lock(node, info);
        match is_done {
            true => self.free_slab(slab, info),
            false => self.push_retired(slab),
        }
    }

    fn free_slab(&self, slab: &'static Slab, info: CacheInfo) {
        self.slabs.store(self.slabs().saturating_sub(1), Relaxed);
        ARENA.count_slab_freed(info.shape);
        slab.free_chunks();
    }

    fn link(&self, slab: &Slab) {
        let head = &self.partial[slab.shard()];
        let first = head.load(Relaxed);
        let number = slab.first_chunk() as u32 + 1;
        slab.next.store(first, Relaxed);
        slab.previous.store(0, Relaxed);
        if first != 0 {
            ARENA.slab(first as usize - 1).previous.store(number, Relaxed);
        }
        head.store(number, Relaxed);
    }

    fn unlink(&self, slab: &Slab) {
        let (next, previous) = (slab.next.load(Relaxed), slab.previous.load(Relaxed));
        match previous {
            0 => self.partial[slab.shard()].store(next, Relaxed),
            _ => ARENA.slab(previous as usize - 1).next.store(next, Relaxed),
        }
        if next != 0 {
            ARENA.slab(next as usize - 1).previous.store(previous, Relaxed);
        }
    }

    /// Fills an empty sheaf with free objects of this node.
    ///
    /// Touches the objects of new slabs. Returns false if no object is free and there is no memory
    /// for a new slab.
    pub(super) fn fill(
        &self,
        sheaf: &mut Sheaf,
        shard: usize,
        node: usize,
        info: CacheInfo,
    ) -> bool {
        {
            let _guard = self.lock(node, info);
            while !sheaf.is_full() {
                // A new slab is worth it only if the sheaf would stay less than half full.
                let is_needed = 2 * sheaf.count() < sheaf.capacity();
                let Some(slab) = self.partial_or_new_slab(shard, node, info, is_needed) else {
                    break;
                };
                let left = sheaf.capacity() - sheaf.count();
                self.take_from(slab, left, info, |taken| sheaf.push(info.encode_taken(taken)));
            }
        }
        // Without the lock, because this touches fresh memory for the first time.
        sheaf.replace_all(|encoded| info.leave_slab(encoded));
        sheaf.count() > 0
    }

    /// Takes one object, for a caller that has no sheaf.
    pub(super) fn take_one(&self, shard: usize, node: usize, info: CacheInfo) -> Option<usize> {
        let mut encoded = None;
        {
            let _guard = self.lock(node, info);
            let slab =
                self.any_slab().or_else(|| self.partial_or_new_slab(shard, node, info, true))?;
            self.take_from(slab, 1, info, |taken| encoded = Some(info.encode_taken(taken)));
        }
        encoded.map(|encoded| info.leave_slab(encoded))
    }

    /// Takes up to `most` free objects of a listed slab.
    fn take_from(
        &self,
        slab: &'static Slab,
        most: usize,
        info: CacheInfo,
        mut each: impl FnMut(TakenObject),
    ) {
        let mut restore = info.restorer(slab);
        slab.take_free(most, |taken| {
            restore.before_use(taken.object);
            each(taken);
        });
        slab.note_change();
        if slab.free() == 0 {
            self.unlink(slab);
        }
    }

    /// Returns a slab with a free object, in the list of `shard`.
    ///
    /// That is a slab of the shard, or one that another shard has besides its first, or a new one.
    /// Without memory for a new one, it is any slab with a free object. A slab of another shard
    /// changes to this one.
    fn partial_or_new_slab(
        &self,
        shard: usize,
        node: usize,
        info: CacheInfo,
        may_be_new: bool,
    ) -> Option<&'static Slab> {
        let found = slab_at(&self.partial[shard]);
        if found.is_some() || !may_be_new {
            return found;
        }
        if let Some(slab) = self.spare_of_other_shard(shard) {
            return Some(self.adopt(slab, shard));
        }
        let Some(first) = self.alloc_chunks(shard, info.shape.chunks) else {
            return self.any_slab().map(|slab| self.adopt(slab, shard));
        };
        ARENA.advise_for_slab(first, info.shape);
        let slab = Slab::init(first, info.owner, node, shard, info.shape, info.tag);
        self.slabs.store(self.slabs() + 1, Relaxed);
        self.link(slab);
        Some(slab)
    }

    /// Allocates chunks for a new slab of a shard.
    fn alloc_chunks(&self, shard: usize, chunks: usize) -> Option<usize> {
        if self.slabs() < SLABS_BEFORE_EXTENTS || chunks > EXTENT_SLAB_CHUNKS_MAX {
            return ARENA.alloc(chunks, 1);
        }
        let next = self.extent_next[shard].load(Relaxed) as usize;
        let first = ARENA.alloc_in_extent(next, chunks)?;
        // A slab that has just filled a hole elsewhere does not move the shard's extent there.
        if first == next || !ARENA.fits_extent(first, chunks) {
            self.extent_next[shard].store((first + chunks) as u32, Relaxed);
        }
        Some(first)
    }

    fn spare_of_other_shard(&self, shard: usize) -> Option<&'static Slab> {
        // Each shard begins with the next one, so that not all of them take from the same.
        let others = (1..SHARDS).map(|distance| &self.partial[(shard + distance) % SHARDS]);
        others.filter_map(slab_at).find_map(|first| slab_at(&first.next))
    }

    fn adopt(&self, slab: &'static Slab, shard: usize) -> &'static Slab {
        self.unlink(slab);
        slab.set_shard(shard);
        self.link(slab);
        slab
    }

    fn any_slab(&self) -> Option<&'static Slab> {
        self.partial.iter().find_map(slab_at)
    }

    /// Returns the objects of a sheaf that belong to this node; the sheaf keeps the others.
    ///
    /// The result is the sheaf, and how many of the objects are of slabs of `shard`, or of any.
    ///
    /// The caller must not use the returned objects again: their slab may be gone.
    pub(super) fn return_objects(
        &self,
        sheaf: Sheaf,
        shard: Option<usize>,
        node: usize,
        info: CacheInfo,
    ) -> (Sheaf, usize) {
        let _guard = self.lock(node, info);
        let mut of_shard = 0;
        let sheaf = sheaf.retain(|encoded| {
            let ObjectRef { slab, index } = find_object(info.key.decode(encoded), info);
            let is_local = slab.node() == node;
            if is_local {
                of_shard += usize::from(shard.is_none_or(|shard| slab.shard() == shard));
                self.put_object(slab, index, info);
            }
            !is_local
        });
        (sheaf, of_shard)
    }

    /// Returns one object that belongs to this node.
    pub(super) fn return_object(&self, encoded: usize, node: usize, info: CacheInfo) {
        let _guard = self.lock(node, info);
        let ObjectRef { slab, index } = find_object(info.key.decode(encoded), info);
        self.put_object(slab, index, info);
    }

    /// Returns how many objects of this node are in no slab; waits for the lock's last holder.
    pub(super) fn objects_outside_slabs(&self, node: usize, info: CacheInfo) -> usize {
        let _guard = self.lock(node, info);
        slabs_with_tag(info).filter(|slab| slab.is_of(info.owner, node)).map(Slab::outside).sum()
    }

    fn put_object(&self, slab: &'static Slab, index: usize, info: CacheInfo) {
        if slab.is_retired_or_ending() {
            // All objects came back already; the last one only counts as allocated.
            HeapError::DoubleFree.report(slab.object_address(index), info.shape.size);
        }
        let is_last = slab.free() + 1 == slab.objects();
        if is_last && info.shape.mark != 0 && slab.is_outside(index) {
            if slab.free() > 0 {
                self.unlink(slab);
            }
            return self.push_retired(slab);
        }
        if !slab.put(index) {
            HeapError::DoubleFree.report(slab.object_address(index), info.shape.size);
        }
        slab.note_change();
        let free = slab.free();
        if free == 1 {
            self.link(slab);
        }
        if free == slab.objects() {
            self.unlink(slab);
            self.free_slab(slab, info);
        }
    }
}

/// Returns the slab that a list word leads to, if it is not 0.
fn slab_at(word: &AtomicU32) -> Option<&'static Slab> {
    (word.load(Relaxed) as usize).checked_sub(1).map(|chunk| ARENA.slab(chunk))
}

/// Returns the slabs of a cache, on all nodes.
pub(super) fn slabs_of_cache(info: CacheInfo) -> impl Iterator<Item = &'static Slab> {
    slabs_with_tag(info).filter(move |slab| slab.owner() == info.owner)
}

/// Returns the slabs with the tag of a cache, which other caches may have too.
fn slabs_with_tag(info: CacheInfo) -> impl Iterator<Item = &'static Slab> {
    tagged_slabs(0..usize::MAX, move |tag| info.may_have_tag(tag)).map(|(_, slab)| slab)
}

/// Returns the slabs that begin in some chunks and have a wanted tag, and their tags.
pub(super) fn tagged_slabs(
    chunks: Range<usize>,
    is_wanted: impl Fn(Tag) -> bool,
) -> impl Iterator<Item = (Tag, &'static Slab)> {
    // `ARENA.tag` loads with Acquire: pairs with the Release in `Arena::set_tag`, so that a slab
    // found by its tag is initialized.
    let tags = (chunks.start..chunks.end.min(ARENA.high())).map(|chunk| (chunk, ARENA.tag(chunk)));
    let slabs = tags.filter(move |&(_, tag)| is_wanted(tag));
    slabs
        .map(|(chunk, tag)| (chunk, tag, ARENA.slab(chunk)))
        .filter_map(|(chunk, tag, slab)| (slab.first_chunk() == chunk).then_some((tag, slab)))
}

/// Returns tag, objects outside and free objects of each slab with a tag of its own class.
///
/// Visits each chunk that was ever used, without a lock.
pub fn objects_by_tag() -> impl Iterator<Item = (Tag, usize, usize)> {
    let has_own_tag = |tag| tag != NO_TAG && tag != LARGE && tag != ANY_CACHE;
    let slabs = tagged_slabs(0..usize::MAX, has_own_tag);
    slabs.map(|(tag, slab)| (tag, slab.outside(), slab.free()))
}

/// Finds an object of the cache; aborts with a heap error if none begins at that address.
pub(crate) fn find_object(object: usize, info: CacheInfo) -> ObjectRef {
    match Slab::containing(object) {
        Some(slab) if slab.owner() == info.owner => slab
            .object_at(object)
            .unwrap_or_else(|| HeapError::InteriorFree.report(object, info.shape.size)),
        _ => HeapError::InvalidFree.report(object, info.shape.size),
    }
}
