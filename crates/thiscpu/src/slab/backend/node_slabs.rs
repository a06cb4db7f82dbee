//! A barn: the slabs of a cache on one NUMA node.
//!
//! Slabs in which an object is free are in a list, one of each shard, those that are all in use are in none, and one whose objects are all
//! free is given back. The lists and the counts are made anew, from the slabs' bits, by a child that was forked while somebody changed
//! them.

use super::barn::BARNS_PER_NODE;
use crate::slab::arena::heap_error::HeapError;
use crate::slab::arena::slab::{ObjectRef, Shape, Slab, TakenObject};
use crate::slab::arena::{ARENA, NOTHING, Tag};
use crate::slab::lane::encoding::{self, Key};
use crate::slab::lane::sheaf::Sheaf;
use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::{Guard, Lock};

/// What a barn has to know of its cache.
#[derive(Clone, Copy)]
pub(crate) struct CacheInfo {
    pub(crate) owner: u32,
    pub(crate) shape: Shape,
    pub(crate) tag: Tag,
    pub(crate) key: Key,
}

impl CacheInfo {
    /// The entry of an object that was just taken from its slab; even, as no other is, if it was never handed out.
    fn encode_taken(self, taken: TakenObject) -> usize {
        self.key.encode(taken.object) & !usize::from(taken.is_fresh)
    }

    /// The entry with which it leaves the slab: one that was never handed out gets its mark, any other must have it still.
    fn leave_slab(self, encoded: usize) -> usize {
        let odd = encoded | 1;
        if encoded != odd {
            self.mark_fresh(odd);
        } else if !self.is_marked(odd) {
            HeapError::WriteAfterFree.report(self.key.decode(odd), self.shape.size);
        }
        odd
    }

    /// Where the mark of an entry's object is.
    pub(crate) fn mark_of(self, encoded: usize) -> usize {
        self.key.decode(encoded) + self.shape.mark
    }

    fn mark_fresh(self, encoded: usize) {
        let is_unmade = self.shape.mark != 0;
        encoding::set_mark(
            self.mark_of(encoded),
            if is_unmade { encoding::unconstructed_mark(encoded) } else { encoded },
        );
    }

    fn is_marked(self, encoded: usize) -> bool {
        let mark = encoding::load_mark(self.mark_of(encoded));
        mark == encoded || (self.shape.mark != 0 && mark == encoding::unconstructed_mark(encoded))
    }
}

/// Lanes that have a stock in common have a shard of the slabs in common, so that no two of them fill what is side by side, where
/// what one CPU fetches ahead is the other's.
const SHARDS: usize = BARNS_PER_NODE;
/// Once a barn has so many slabs, those of a shard lie side by side too, if they have so many chunks at most.
const SLABS_BEFORE_EXTENTS: usize = 8;
const EXTENT_SLAB_CHUNKS_MAX: usize = 4;

#[repr(align(64))]
pub(crate) struct NodeSlabs {
    lock: Lock,
    /// The first slab of each shard in which an object is free, as its chunk plus one.
    partial: [AtomicU32; SHARDS],
    /// What comes behind the last slab that was made in a extent of each shard's, as a chunk; no more than advice.
    extent_next: [AtomicU32; SHARDS],
    /// The first slab whose constructed objects wait to be destroyed. One of them is out until that is done, so
    /// that nobody believes the cache to be empty.
    retired: AtomicU32,
    slabs: AtomicUsize,
}

impl NodeSlabs {
    pub(super) const fn new() -> NodeSlabs {
        NodeSlabs {
            lock: Lock::new(),
            partial: [const { AtomicU32::new(0) }; SHARDS],
            extent_next: [const { AtomicU32::new(0) }; SHARDS],
            retired: AtomicU32::new(0),
            slabs: AtomicUsize::new(0),
        }
    }

    pub(super) fn slabs(&self) -> usize {
        self.slabs.load(Relaxed)
    }

    /// Whether somebody has its lock; about.
    pub(super) fn is_busy(&self) -> bool {
        self.lock.is_held()
    }

    fn lock(&self, node: usize, info: CacheInfo) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.left_behind {
            self.rebuild_lists(node, info);
        }
        guard
    }

    /// Waits for who has the lock, if somebody has.
    pub(super) fn wait_for_unlock(&self, node: usize, info: CacheInfo) {
        drop(self.lock(node, info));
    }

    fn rebuild_lists(&self, node: usize, info: CacheInfo) {
        self.partial.iter().for_each(|first| first.store(0, Relaxed));
        self.retired.store(0, Relaxed);
        self.slabs.store(0, Relaxed);
        for slab in slabs_with_tag(info).filter(|slab| slab.is_of(info.owner, node)) {
            slab.recount();
            if slab.free() == slab.objects() {
                // Its last object was coming back, or its first was to be taken.
                slab.free_chunks();
                continue;
            }
            self.slabs.store(self.slabs() + 1, Relaxed);
            if slab.is_retired() {
                self.push_retired(slab);
            } else if slab.free() > 0 && !slab.is_retired_or_ending() {
                // One that is ending is left to the thread that has it, which may be this very one: the drop of a value can
                // fork. If that thread is not in this process the slab is lost.
                self.link(slab);
            }
        }
    }

    fn push_retired(&self, slab: &Slab) {
        slab.retire();
        slab.next.store(self.retired.load(Relaxed), Relaxed);
        self.retired.store(slab.chunk() as u32 + 1, Relaxed);
    }

    /// Whether a slab waits for its objects to be destroyed; about.
    pub(super) fn has_retired(&self) -> bool {
        self.retired.load(Relaxed) != 0
    }

    /// A slab whose objects are to be destroyed, which the caller has for itself.
    pub(super) fn take_retired(&self, node: usize, info: CacheInfo) -> Option<&'static Slab> {
        let _guard = self.lock(node, info);
        let slab = ARENA.slab((self.retired.load(Relaxed) as usize).checked_sub(1)?);
        slab.begin_destroy();
        self.retired.store(slab.next.load(Relaxed), Relaxed);
        Some(slab)
    }

    /// Ends a slab that was taken from there; or puts it back if not all of its objects are destroyed.
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
        let number = slab.chunk() as u32 + 1;
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

    /// Fills a sheaf with what is free on this node, and with `most` objects at most; those of new slabs are touched
    /// by this. False if there is nothing and no memory for more.
    pub(super) fn fill(
        &self,
        sheaf: &mut Sheaf,
        most: usize,
        shard: usize,
        node: usize,
        info: CacheInfo,
    ) -> bool {
        let before = sheaf.count();
        {
            let _guard = self.lock(node, info);
            let mut left = most.min(sheaf.capacity() - before);
            while left > 0 {
                // A new slab only for a sheaf that would stay less than half full.
                let is_needed = 2 * (sheaf.count() - before) < most;
                let Some(slab) = self.partial_or_new_slab(shard, node, info, is_needed) else {
                    break;
                };
                let count = sheaf.count();
                slab.take(left, |taken| sheaf.push(info.encode_taken(taken)));
                left -= sheaf.count() - count;
                if slab.free() == 0 {
                    self.unlink(slab);
                }
            }
        }
        // Not under the lock: here memory is touched for the first time.
        sheaf.replace_from(before, |encoded| info.leave_slab(encoded));
        sheaf.count() > before
    }

    /// The same for one entry, where there is no memory for a sheaf.
    pub(super) fn take_one(&self, shard: usize, node: usize, info: CacheInfo) -> Option<usize> {
        let mut encoded = None;
        {
            let _guard = self.lock(node, info);
            let slab =
                self.any_slab().or_else(|| self.partial_or_new_slab(shard, node, info, true))?;
            slab.take(1, |taken| encoded = Some(info.encode_taken(taken)));
            if slab.free() == 0 {
                self.unlink(slab);
            }
        }
        encoded.map(|encoded| info.leave_slab(encoded))
    }

    /// A slab in which an object is free: one of that shard, one of those that another shard has besides its first, which belongs to this
    /// one from then on, or a new one. If there is no memory for one, any.
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

    /// Chunks for a new slab of a shard.
    fn alloc_chunks(&self, shard: usize, chunks: usize) -> Option<usize> {
        if self.slabs() < SLABS_BEFORE_EXTENTS || chunks > EXTENT_SLAB_CHUNKS_MAX {
            return ARENA.alloc(chunks, 1);
        }
        let next = self.extent_next[shard].load(Relaxed) as usize;
        let first = ARENA.alloc_in_extent(next, chunks)?;
        // Not from where it has just filled a hole on.
        if first == next || !ARENA.fits_extent(first, chunks) {
            self.extent_next[shard].store((first + chunks) as u32, Relaxed);
        }
        Some(first)
    }

    fn spare_of_other_shard(&self, shard: usize) -> Option<&'static Slab> {
        // Each begins with the next shard, so that not all take from the same.
        let others = (1..SHARDS).map(|distance| &self.partial[(shard + distance) % SHARDS]);
        others.filter_map(slab_at).find_map(|first| slab_at(&first.next))
    }

    /// Makes a slab_at slab one of that shard.
    fn adopt(&self, slab: &'static Slab, shard: usize) -> &'static Slab {
        self.unlink(slab);
        slab.set_shard(shard);
        self.link(slab);
        slab
    }

    fn any_slab(&self) -> Option<&'static Slab> {
        self.partial.iter().find_map(slab_at)
    }

    /// Takes back the objects of a sheaf that belong to this node. The sheaf with the others: those that were taken back
    /// are nobody's any more, nor may there be a slab where they are.
    pub(super) fn return_objects(&self, sheaf: Sheaf, node: usize, info: CacheInfo) -> Sheaf {
        let _guard = self.lock(node, info);
        sheaf.retain(|encoded| {
            let ObjectRef { slab, index } = find_object(info.key.decode(encoded), info);
            let is_here = slab.node() == node;
            if is_here {
                self.put_object(slab, index, info);
            }
            !is_here
        })
    }

    /// Takes one object back, which belongs to this node.
    pub(super) fn return_object(&self, encoded: usize, node: usize, info: CacheInfo) {
        let _guard = self.lock(node, info);
        let ObjectRef { slab, index } = find_object(info.key.decode(encoded), info);
        self.put_object(slab, index, info);
    }

    /// How many objects of this node are in no slab. Under the lock: whoever gave the last one back has done with the
    /// barn then.
    pub(super) fn objects_outside_slabs(&self, node: usize, info: CacheInfo) -> usize {
        let _guard = self.lock(node, info);
        slabs_with_tag(info).filter(|slab| slab.is_of(info.owner, node)).map(Slab::out).sum()
    }

    fn put_object(&self, slab: &'static Slab, index: usize, info: CacheInfo) {
        if slab.is_retired_or_ending() {
            // Its last object is out for whoever counts, and nobody's.
            HeapError::DoubleFree.report(slab.object(index), info.shape.size);
        }
        let is_last = slab.free() + 1 == slab.objects();
        if is_last && info.shape.mark != 0 && slab.is_out(index) {
            if slab.free() > 0 {
                self.unlink(slab);
            }
            return self.push_retired(slab);
        }
        if !slab.give(index) {
            HeapError::DoubleFree.report(slab.object(index), info.shape.size);
        }
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

/// The slab that such a word leads to.
fn slab_at(word: &AtomicU32) -> Option<&'static Slab> {
    (word.load(Relaxed) as usize).checked_sub(1).map(|chunk| ARENA.slab(chunk))
}

/// The slabs of a cache, on any node.
pub(super) fn slabs_of_cache(info: CacheInfo) -> impl Iterator<Item = &'static Slab> {
    slabs_with_tag(info).filter(move |slab| slab.owner() == info.owner)
}

/// The slabs that have the tag of a cache.
fn slabs_with_tag(info: CacheInfo) -> impl Iterator<Item = &'static Slab> {
    tagged_slabs(move |tag| tag == info.tag).map(|(_, slab)| slab)
}

/// The slabs that have such a tag, and which.
fn tagged_slabs(is_wanted: impl Fn(Tag) -> bool) -> impl Iterator<Item = (Tag, &'static Slab)> {
    // Acquire: pairs with the Release in `Slab::init`, so that what is known of a slab is not from one before.
    let tags = (0..ARENA.high()).map(|chunk| (chunk, ARENA.tag(chunk)));
    let slabs = tags.filter(move |&(_, tag)| is_wanted(tag));
    slabs
        .map(|(chunk, tag)| (chunk, tag, ARENA.slab(chunk)))
        .filter_map(|(chunk, tag, slab)| (slab.chunk() == chunk).then_some((tag, slab)))
}

/// Each slab of a class with a number of its own: that, and how many objects are not free in it. One look at each chunk that was ever used.
pub fn outside_by_tag() -> impl Iterator<Item = (Tag, usize)> {
    tagged_slabs(|tag| tag > NOTHING).map(|(tag, slab)| (tag, slab.out()))
}

/// Where an object of the cache is. Ends the process if it is none.
pub(crate) fn find_object(object: usize, info: CacheInfo) -> ObjectRef {
    match Slab::containing(object) {
        Some(slab) if slab.owner() == info.owner => slab
            .object_at(object)
            .unwrap_or_else(|| HeapError::InteriorFree.report(object, info.shape.size)),
        _ => HeapError::InvalidFree.report(object, info.shape.size),
    }
}
