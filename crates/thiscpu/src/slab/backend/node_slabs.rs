//! A barn: the slabs of a cache on one NUMA node.
//!
//! Slabs in which an object is free are in a list, one of each part, those that are all in use are in none, and one whose objects are all
//! free is given back. The lists and the counts are made anew, from the slabs' bits, by a child that was forked while somebody changed
//! them.

use super::barn::STOCKS;
use crate::slab::arena::heap_error::HeapError;
use crate::slab::arena::slab::{ObjectRef, Shape, Slab, TakenObject};
use crate::slab::arena::{ARENA, NOTHING, Tag};
use crate::slab::lane::encoding::{self, Key};
use crate::slab::lane::sheaf::Sheaf;
use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::{Guard, Lock};

/// What a barn has to know of its cache.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) owner: u32,
    pub(crate) shape: Shape,
    pub(crate) tag: Tag,
    pub(crate) key: Key,
}

impl Kind {
    /// The entry of an object that was just taken from its slab; even, as no other is, if it was never handed out.
    fn entry_of(self, taken: TakenObject) -> usize {
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

/// Lanes that have a stock in common have a part of the slabs in common, so that no two of them fill what is side by side, where
/// what one CPU fetches ahead is the other's.
const PARTS: usize = STOCKS;
/// Once a barn has so many slabs, those of a part lie side by side too, if they have so many chunks at most.
const SLABS_TO_PART: usize = 8;
const CHUNKS_TO_PART: usize = 4;

#[repr(align(64))]
pub(crate) struct Barn {
    lock: Lock,
    /// The first slab of each part in which an object is free, as its chunk plus one.
    firsts: [AtomicU32; PARTS],
    /// What comes behind the last slab that was made in a extent of each part's, as a chunk; no more than advice.
    nexts: [AtomicU32; PARTS],
    /// The first slab whose constructed objects wait to be destroyed. One of them is out until that is done, so
    /// that nobody believes the cache to be empty.
    retired: AtomicU32,
    slabs: AtomicUsize,
}

impl Barn {
    pub(super) const fn new() -> Barn {
        Barn {
            lock: Lock::new(),
            firsts: [const { AtomicU32::new(0) }; PARTS],
            nexts: [const { AtomicU32::new(0) }; PARTS],
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

    fn lock(&self, node: usize, kind: Kind) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.left_behind {
            self.list_anew(node, kind);
        }
        guard
    }

    /// Waits for who has the lock, if somebody has.
    pub(super) fn settle(&self, node: usize, kind: Kind) {
        drop(self.lock(node, kind));
    }

    fn list_anew(&self, node: usize, kind: Kind) {
        self.firsts.iter().for_each(|first| first.store(0, Relaxed));
        self.retired.store(0, Relaxed);
        self.slabs.store(0, Relaxed);
        for slab in all_firsts(kind).filter(|slab| slab.is_of(kind.owner, node)) {
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
    pub(super) fn pop_retired(&self, node: usize, kind: Kind) -> Option<&'static Slab> {
        let _guard = self.lock(node, kind);
        let slab = ARENA.slab((self.retired.load(Relaxed) as usize).checked_sub(1)?);
        slab.begin_destroy();
        self.retired.store(slab.next.load(Relaxed), Relaxed);
        Some(slab)
    }

    /// Ends a slab that was taken from there; or puts it back if not all of its objects are destroyed.
    pub(crate) fn end_retired(&self, slab: &'static Slab, is_done: bool, node: usize, kind: Kind) {
        let _guard = self.lock(node, kind);
        match is_done {
            true => self.end(slab, kind),
            false => self.push_retired(slab),
        }
    }

    fn end(&self, slab: &'static Slab, kind: Kind) {
        self.slabs.store(self.slabs().saturating_sub(1), Relaxed);
        ARENA.count_slab_freed(kind.shape);
        slab.free_chunks();
    }

    fn link(&self, slab: &Slab) {
        let head = &self.firsts[slab.part()];
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
            0 => self.firsts[slab.part()].store(next, Relaxed),
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
        part: usize,
        node: usize,
        kind: Kind,
    ) -> bool {
        let before = sheaf.count();
        {
            let _guard = self.lock(node, kind);
            let mut left = most.min(sheaf.capacity() - before);
            while left > 0 {
                // A new slab only for a sheaf that would stay less than half full.
                let is_needed = 2 * (sheaf.count() - before) < most;
                let Some(slab) = self.a_slab(part, node, kind, is_needed) else { break };
                let count = sheaf.count();
                slab.take(left, |taken| sheaf.push(kind.entry_of(taken)));
                left -= sheaf.count() - count;
                if slab.free() == 0 {
                    self.unlink(slab);
                }
            }
        }
        // Not under the lock: here memory is touched for the first time.
        sheaf.replace_from(before, |encoded| kind.leave_slab(encoded));
        sheaf.count() > before
    }

    /// The same for one entry, where there is no memory for a sheaf.
    pub(super) fn take_one(&self, part: usize, node: usize, kind: Kind) -> Option<usize> {
        let mut encoded = None;
        {
            let _guard = self.lock(node, kind);
            let slab = self.any_slab().or_else(|| self.a_slab(part, node, kind, true))?;
            slab.take(1, |taken| encoded = Some(kind.entry_of(taken)));
            if slab.free() == 0 {
                self.unlink(slab);
            }
        }
        encoded.map(|encoded| kind.leave_slab(encoded))
    }

    /// A slab in which an object is free: one of that part, one of those that another part has besides its first, which belongs to this
    /// one from then on, or a new one. If there is no memory for one, any.
    fn a_slab(
        &self,
        part: usize,
        node: usize,
        kind: Kind,
        may_be_new: bool,
    ) -> Option<&'static Slab> {
        let found = listed(&self.firsts[part]);
        if found.is_some() || !may_be_new {
            return found;
        }
        if let Some(slab) = self.one_besides_the_first(part) {
            return Some(self.adopt(slab, part));
        }
        let Some(first) = self.chunks_for(part, kind.shape.chunks) else {
            return self.any_slab().map(|slab| self.adopt(slab, part));
        };
        ARENA.advise_for_slab(first, kind.shape);
        let slab = Slab::init(first, kind.owner, node, part, kind.shape, kind.tag);
        self.slabs.store(self.slabs() + 1, Relaxed);
        self.link(slab);
        Some(slab)
    }

    /// Chunks for a new slab of a part.
    fn chunks_for(&self, part: usize, chunks: usize) -> Option<usize> {
        if self.slabs() < SLABS_TO_PART || chunks > CHUNKS_TO_PART {
            return ARENA.alloc(chunks, 1);
        }
        let next = self.nexts[part].load(Relaxed) as usize;
        let first = ARENA.alloc_in_extent(next, chunks)?;
        // Not from where it has just filled a hole on.
        if first == next || !ARENA.fits_extent(first, chunks) {
            self.nexts[part].store((first + chunks) as u32, Relaxed);
        }
        Some(first)
    }

    fn one_besides_the_first(&self, part: usize) -> Option<&'static Slab> {
        // Each begins with the next part, so that not all take from the same.
        let others = (1..PARTS).map(|distance| &self.firsts[(part + distance) % PARTS]);
        others.filter_map(listed).find_map(|first| listed(&first.next))
    }

    /// Makes a listed slab one of that part.
    fn adopt(&self, slab: &'static Slab, part: usize) -> &'static Slab {
        self.unlink(slab);
        slab.set_part(part);
        self.link(slab);
        slab
    }

    fn any_slab(&self) -> Option<&'static Slab> {
        self.firsts.iter().find_map(listed)
    }

    /// Takes back the objects of a sheaf that belong to this node. The sheaf with the others: those that were taken back
    /// are nobody's any more, nor may there be a slab where they are.
    pub(super) fn take_back(&self, sheaf: Sheaf, node: usize, kind: Kind) -> Sheaf {
        let _guard = self.lock(node, kind);
        sheaf.retain(|encoded| {
            let ObjectRef { slab, index } = find(kind.key.decode(encoded), kind);
            let is_here = slab.node() == node;
            if is_here {
                self.take_back_one(slab, index, kind);
            }
            !is_here
        })
    }

    /// Takes one object back, which belongs to this node.
    pub(super) fn take_back_entry(&self, encoded: usize, node: usize, kind: Kind) {
        let _guard = self.lock(node, kind);
        let ObjectRef { slab, index } = find(kind.key.decode(encoded), kind);
        self.take_back_one(slab, index, kind);
    }

    /// How many objects of this node are in no slab. Under the lock: whoever gave the last one back has done with the
    /// barn then.
    pub(super) fn objects_outside_slabs(&self, node: usize, kind: Kind) -> usize {
        let _guard = self.lock(node, kind);
        all_firsts(kind).filter(|slab| slab.is_of(kind.owner, node)).map(Slab::out).sum()
    }

    fn take_back_one(&self, slab: &'static Slab, index: usize, kind: Kind) {
        if slab.is_retired_or_ending() {
            // Its last object is out for whoever counts, and nobody's.
            HeapError::DoubleFree.report(slab.object(index), kind.shape.size);
        }
        let is_last = slab.free() + 1 == slab.objects();
        if is_last && kind.shape.mark != 0 && slab.is_out(index) {
            if slab.free() > 0 {
                self.unlink(slab);
            }
            return self.push_retired(slab);
        }
        if !slab.give(index) {
            HeapError::DoubleFree.report(slab.object(index), kind.shape.size);
        }
        let free = slab.free();
        if free == 1 {
            self.link(slab);
        }
        if free == slab.objects() {
            self.unlink(slab);
            self.end(slab, kind);
        }
    }
}

/// The slab that such a word leads to.
fn listed(word: &AtomicU32) -> Option<&'static Slab> {
    (word.load(Relaxed) as usize).checked_sub(1).map(|chunk| ARENA.slab(chunk))
}

/// The slabs of a cache, on any node.
pub(super) fn all_of(kind: Kind) -> impl Iterator<Item = &'static Slab> {
    all_firsts(kind).filter(move |slab| slab.owner() == kind.owner)
}

/// The slabs that have the tag of a cache.
fn all_firsts(kind: Kind) -> impl Iterator<Item = &'static Slab> {
    firsts(move |tag| tag == kind.tag).map(|(_, slab)| slab)
}

/// The slabs that have such a tag, and which.
fn firsts(is_wanted: impl Fn(Tag) -> bool) -> impl Iterator<Item = (Tag, &'static Slab)> {
    // Acquire: pairs with the Release in `Slab::init`, so that what is known of a slab is not from one before.
    let tags = (0..ARENA.high()).map(|chunk| (chunk, ARENA.tag(chunk)));
    let slabs = tags.filter(move |&(_, tag)| is_wanted(tag));
    slabs
        .map(|(chunk, tag)| (chunk, tag, ARENA.slab(chunk)))
        .filter_map(|(chunk, tag, slab)| (slab.chunk() == chunk).then_some((tag, slab)))
}

/// Each slab of a class with a number of its own: that, and how many objects are not free in it. One look at each chunk that was ever used.
pub fn out_by_tag() -> impl Iterator<Item = (Tag, usize)> {
    firsts(|tag| tag > NOTHING).map(|(tag, slab)| (tag, slab.out()))
}

/// Where an object of the cache is. Ends the process if it is none.
pub(crate) fn find(object: usize, kind: Kind) -> ObjectRef {
    match Slab::containing(object) {
        Some(slab) if slab.owner() == kind.owner => slab
            .object_at(object)
            .unwrap_or_else(|| HeapError::InteriorFree.report(object, kind.shape.size)),
        _ => HeapError::InvalidFree.report(object, kind.shape.size),
    }
}
