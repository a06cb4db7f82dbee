//! Returning free pages of slabs in use to the system, for several classes in one walk.

use core::ops::Range;

use super::Handle;
use crate::section::Access;
use crate::slab::arena::{ARENA, Tag};
use crate::slab::backend::free_pages::{SlabPages, slabs_with_free_pages};

/// What a walk over slabs has done.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// Bytes of dropped pages.
    pub bytes: usize,
    /// Bytes of pages that the system was asked to drop; it keeps locked ones.
    pub tried: usize,
    /// Number of slabs that it has looked into.
    pub slabs: usize,
    /// The chunk at which the next walk goes on, or `None` at the end of the heap.
    pub next: Option<usize>,
    /// Whether some slabs may have free pages once they are idle.
    pub is_more_later: bool,
}

/// Drops pages in which all objects are free, of partly used slabs.
///
/// `class` returns the class that has a tag, negated or not; slabs of other classes keep their
/// pages. The walk visits slabs that begin in `chunks`, and ends once `most` bytes were tried.
/// Takes the lock of a class for each slab that may have free pages.
pub fn drop_free_pages<'a, A: Access>(
    chunks: Range<usize>,
    most: usize,
    pages: SlabPages,
    class: impl Fn(Tag) -> Option<Handle<'a, A>>,
) -> Dropped {
    let end = chunks.end;
    let mut done = Dropped { bytes: 0, tried: 0, slabs: 0, next: None, is_more_later: false };
    for (tag, first) in slabs_with_free_pages(chunks) {
        let Some(class) = class(tag) else { continue };
        let [bytes, tried] = class.drop_free_pages(first, pages);
        done.bytes += bytes;
        done.tried += tried;
        done.slabs += 1;
        done.is_more_later |= ARENA.slab(first).awaits_looks();
        if done.tried >= most {
            return Dropped { next: Some(first + 1), ..done };
        }
    }
    Dropped { next: (end < ARENA.high()).then_some(end), ..done }
}

impl<A: Access> Handle<'_, A> {
    /// Drops the free pages of the slab that begins with a chunk, if it is one of the class.
    ///
    /// Returns how many bytes, and how many it tried; 0 if the class is one whose pages must stay.
    fn drop_free_pages(self, first: usize, pages: SlabPages) -> [usize; 2] {
        self.class.backend_if_used().map_or([0; 2], |backend| backend.drop_free_pages(first, pages))
    }
}
