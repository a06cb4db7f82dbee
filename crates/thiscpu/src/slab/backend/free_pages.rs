//! Dropping the free pages of slabs, and marking their objects again before one is taken.

use core::ops::Range;

use super::Backend;
use super::cache_info::CacheInfo;
use super::node_slabs::{NodeSlabs, tagged_slabs};
use crate::slab::arena::heap_error::HeapError;
use crate::slab::arena::slab::Slab;
use crate::slab::arena::{ARENA, Tag, is_of_class};
use crate::slab::lane::encoding;
use crate::sys::Host;
use crate::sys::machine::Machine as _;

/// Which slabs a caller drops free pages of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabPages {
    /// Those of all slabs.
    All,
    /// Those of slabs that nothing changed since the look before.
    Idle,
}

impl Backend {
    /// Drops the free pages of the slab at a chunk: see [`NodeSlabs::drop_free_pages`].
    pub(in crate::slab) fn drop_free_pages(
        &'static self,
        first: usize,
        pages: SlabPages,
    ) -> [usize; 2] {
        let node = ARENA.slab(first).node();
        // Objects that stay constructed must stay as they are while they are free.
        match self.nodes().get(node).filter(|_| self.info.shape.mark == 0) {
            Some(nodes) => nodes.slabs.drop_free_pages(first, node, self.info, pages),
            None => [0; 2],
        }
    }
}

impl NodeSlabs {
    /// Drops the free pages of a slab that begins with a chunk.
    ///
    /// Returns how many bytes, and how many it tried: the system keeps locked ones.
    /// Does nothing unless it is a partly used slab of this node, and an idle one if only those are
    /// wanted. Holds the lock meanwhile, as for a new slab.
    fn drop_free_pages(
        &self,
        first: usize,
        node: usize,
        info: CacheInfo,
        pages: SlabPages,
    ) -> [usize; 2] {
        let _guard = self.lock(node, info);
        let slab = ARENA.slab(first);
        let is_slab = info.may_have_tag(ARENA.tag(first))
            && slab.first_chunk() == first
            && slab.is_of(info.owner, node)
            && slab.may_have_free_pages();
        let is_wanted =
            || pages == SlabPages::All || (slab.look_idle() && slab.is_worth_dropping());
        if is_slab && is_wanted() { info.drop_free_pages_of(slab) } else { [0; 2] }
    }
}

impl CacheInfo {
    /// Returns whether a slab with a tag may be one of the cache.
    pub(super) fn may_have_tag(self, tag: Tag) -> bool {
        tag == self.tag || (is_of_class(tag) && tag == -self.tag)
    }

    fn drop_free_pages_of(self, slab: &Slab) -> [usize; 2] {
        let (mut from, mut dropped, mut tried) = (0, 0, 0);
        while let Some(pages) = slab.free_pages_from(from) {
            from = pages.end;
            let run = pages.start * Host::page_bytes()..pages.end * Host::page_bytes();
            tried += run.len();
            if slab.drop_pages(pages, self.tag) {
                dropped += run.len();
            } else {
                self.restore_bytes(slab, run, slab.handed_out());
            }
        }
        [dropped, tried]
    }

    /// Prepares for taking free objects of a slab, in ascending order.
    pub(super) fn restorer(self, slab: &Slab) -> Restorer<'_> {
        let done_to = if slab.has_dropped_pages() { 0 } else { usize::MAX };
        Restorer { info: self, slab, handed_out: slab.handed_out(), done_to }
    }

    /// Restores the pages of some bytes of a slab, as [`Slab::restore_pages`] does.
    fn restore_bytes(self, slab: &Slab, bytes: Range<usize>, handed_out: usize) {
        slab.restore_pages(bytes, handed_out, self.tag, |object| {
            let encoded = self.key.encode(object);
            // The system may have kept the page.
            if encoding::load_mark(object) != 0 && !self.is_marked(encoded) {
                HeapError::WriteAfterFree.report(object, self.shape.size);
            }
            encoding::set_mark(object, encoded);
        });
    }
}

/// Restores the pages of objects that are taken out of a slab.
pub(super) struct Restorer<'s> {
    info: CacheInfo,
    slab: &'s Slab,
    /// The objects that were ever handed out before, the first ones. The others have no mark yet.
    handed_out: usize,
    /// The last address at which an object needs no further look.
    done_to: usize,
}

impl Restorer<'_> {
    /// Restores the pages of an object that was just taken.
    #[inline]
    pub(super) fn before_use(&mut self, object: usize) {
        if object > self.done_to {
            self.restore(object);
        }
    }

    #[cold]
    fn restore(&mut self, object: usize) {
        let begin = self.slab.object_address(0);
        let end = (object + self.info.shape.size).next_multiple_of(Host::page_bytes());
        self.info.restore_bytes(self.slab, object - begin..end - begin, self.handed_out);
        self.done_to = end - self.info.shape.size;
    }
}

/// Returns tag and first chunk of the slabs among some chunks that may have free pages.
///
/// Without a lock. Leaves out caches without a tag of their own. A call that frees one of their
/// objects does not look at the tag, so it would not notice a second free of an unmarked object.
pub(in crate::slab) fn slabs_with_free_pages(
    chunks: Range<usize>,
) -> impl Iterator<Item = (Tag, usize)> {
    let slabs = tagged_slabs(chunks, is_of_class).filter(|(_, slab)| slab.may_have_free_pages());
    slabs.map(|(tag, slab)| (tag, slab.first_chunk()))
}
