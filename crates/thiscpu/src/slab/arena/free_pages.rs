//! Free pages of slabs in use: pages in which all objects are free. They can go back to the system.
//!
//! A dropped page reads as zeros, so the objects that begin in it have lost their free marks. Each
//! chunk has a bit for each of its pages that says whether it is dropped. Before an object is taken
//! out of its slab, its pages are *restored*: all objects that begin in them are marked again.
//!
//! Without a mark, the fast path would not notice a second free. So a slab with dropped pages has
//! the negated tag of its class. The fast path leaves its objects to a general one, which asks the
//! slab's own bits. When the last page is restored, the slab gets its tag back. The tags of large
//! objects stay: the path that frees these never asks marks alone.
//!
//! All of this happens under the lock of the node slabs. Tags and bits change before a page is
//! dropped, and after its objects are marked. So a child that is forked in between has dropped
//! pages with contents at worst.

use core::ops::Range;

use super::heap_error::HeapError;
use super::purge::PURGED_BYTES;
use super::slab::Slab;
use super::{ARENA, CHUNK_BYTES, NO_TAG, Tag};
use crate::sys::Host;
use crate::sys::atomic::{AtomicU16, Ordering::Relaxed};
use crate::sys::machine::Machine as _;

/// The pages of a slab that are dropped.
#[derive(Default)]
pub(super) struct FreePages {
    /// A bit for each page of this chunk that is dropped.
    bits: AtomicU16,
    /// Number of dropped pages of the slab that begins with this chunk.
    dropped: AtomicU16,
    /// Not 0 if an object was taken or put since free pages were dropped.
    ///
    /// It is the number of looks that are left, or [`PUT_OFF`].
    changed: AtomicU16,
}

/// What [`Slab::note_change`] stores; the number of looks until the slab counts as idle.
const CHANGED: u16 = 2;
/// For a slab that no look asks for before the next change.
const PUT_OFF: u16 = u16::MAX;

/// Number of dropped pages of all slabs; an estimate.
///
/// Not of `sys::atomic`, because models need not explore the order of statistics.
static DROPPED_PAGES: core::sync::atomic::AtomicIsize = core::sync::atomic::AtomicIsize::new(0);

/// Returns the bytes of slabs in use whose pages are dropped; an estimate.
pub(super) fn dropped_bytes() -> usize {
    // A child forked in the middle of a change may count some too few.
    match DROPPED_PAGES.load(Relaxed).max(0) as usize {
        0 => 0,
        pages => pages * Host::page_bytes(),
    }
}

/// Whether any slab has changed since [`forget_slab_changes`]; an estimate, like the number.
static HAVE_SLABS_CHANGED: core::sync::atomic::AtomicBool =
    core::sync::atomic::AtomicBool::new(false);

/// Returns whether objects of any slab were taken or put since [`forget_slab_changes`].
pub fn have_slabs_changed() -> bool {
    HAVE_SLABS_CHANGED.load(Relaxed)
}

/// Makes [`have_slabs_changed`] return false until the next change.
pub fn forget_slab_changes() {
    HAVE_SLABS_CHANGED.store(false, Relaxed);
}

fn count_dropped(pages: isize) {
    DROPPED_PAGES.fetch_add(pages, Relaxed);
}

impl Slab {
    /// Notes that an object was taken or put.
    pub(crate) fn note_change(&self) {
        self.free_pages.changed.store(CHANGED, Relaxed);
        // The load keeps the cache line shared.
        if !have_slabs_changed() {
            HAVE_SLABS_CHANGED.store(true, Relaxed);
        }
    }

    /// Returns whether there may be free pages; an estimate without the lock.
    pub(crate) fn may_have_free_pages(&self) -> bool {
        self.free_pages.changed.load(Relaxed) != 0 && self.free() > 0
    }

    /// Returns whether later looks may find the slab idle; an estimate without the lock.
    pub(crate) fn awaits_looks(&self) -> bool {
        self.may_have_free_pages() && self.free_pages.changed.load(Relaxed) != PUT_OFF
    }

    /// Returns whether idle looks drop the slab's free pages; if not, puts them off.
    ///
    /// That takes the advice from a range of huge pages. It is worth it only if a quarter of the
    /// slab's objects were used and are free.
    pub(crate) fn is_worth_dropping(&self) -> bool {
        let used = self.objects() - self.free();
        let is_worth = !ARENA.is_advised(self.first_chunk())
            || (self.handed_out() - used) * 4 >= self.objects();
        if !is_worth {
            self.free_pages.changed.store(PUT_OFF, Relaxed);
        }
        is_worth
    }

    /// Returns whether no object was taken or put since the look before; this call is a look.
    pub(crate) fn look_idle(&self) -> bool {
        if !self.awaits_looks() {
            return false;
        }
        let left = self.free_pages.changed.load(Relaxed).saturating_sub(1);
        // The slab stays one that may have free pages until these are dropped.
        self.free_pages.changed.store(left.max(1), Relaxed);
        left == 0
    }

    /// Returns whether some pages are dropped.
    #[inline]
    pub(crate) fn has_dropped_pages(&self) -> bool {
        self.free_pages.dropped.load(Relaxed) != 0
    }

    /// Returns the chunks of the slab.
    fn chunk_range(&self) -> Range<usize> {
        let first = self.first_chunk();
        first..first + self.chunks.load(Relaxed) as usize
    }

    /// Returns the word that has the bit of a page, and the bit.
    fn dropped_bit(&self, page: usize) -> (&'static AtomicU16, u16) {
        let pages = CHUNK_BYTES / Host::page_bytes();
        (&ARENA.slab(self.first_chunk() + page / pages).free_pages.bits, 1 << (page % pages))
    }

    fn is_dropped(&self, page: usize) -> bool {
        self.has_dropped_pages() && {
            let (word, bit) = self.dropped_bit(page);
            word.load(Relaxed) & bit != 0
        }
    }

    fn set_dropped(&self, page: usize, is_dropped: bool) {
        let ((word, bit), count) = (self.dropped_bit(page), self.free_pages.dropped.load(Relaxed));
        let (word_before, change) = (word.load(Relaxed), if is_dropped { 1 } else { -1 });
        word.store(if is_dropped { word_before | bit } else { word_before & !bit }, Relaxed);
        self.free_pages.dropped.store(count.wrapping_add_signed(change), Relaxed);
        count_dropped(isize::from(change));
    }

    /// Changes the tags of a slab in use.
    fn set_tag(&self, tag: Tag) {
        let size = self.size.load(Relaxed);
        self.chunk_range().for_each(|chunk| ARENA.set_tag(chunk, tag, size));
    }

    /// Forgets which pages are dropped, when the slab is about to end.
    pub(super) fn forget_dropped_pages(&self) {
        if self.has_dropped_pages() {
            let bits = self.chunk_range().map(|chunk| &ARENA.slab(chunk).free_pages.bits);
            bits.for_each(|bits| bits.store(0, Relaxed));
            count_dropped(-(self.free_pages.dropped.swap(0, Relaxed) as isize));
        }
    }

    /// Recounts the dropped pages in a child, and completes a change of tags.
    ///
    /// `tag` is the class's.
    pub(crate) fn recount_dropped_pages(&self, tag: Tag) {
        let bits = self.chunk_range().map(|chunk| &ARENA.slab(chunk).free_pages.bits);
        let dropped = bits.map(|bits| bits.load(Relaxed).count_ones() as u16).sum();
        self.free_pages.dropped.store(dropped, Relaxed);
        self.restore_tag(tag);
    }

    /// Gives the slab the tag of its class back, unless pages are dropped.
    fn restore_tag(&self, tag: Tag) {
        if tag > NO_TAG && !self.has_dropped_pages() {
            self.set_tag(tag);
        }
    }

    /// Returns the first run of free pages from `page` on, of a partly used slab.
    ///
    /// From here on, the slab has no more free pages until the next change. The caller holds the
    /// lock of the node slabs.
    pub(crate) fn free_pages_from(&self, page: usize) -> Option<Range<usize>> {
        self.free_pages.changed.store(0, Relaxed);
        let pages = self.chunk_range().len() * (CHUNK_BYTES / Host::page_bytes());
        let begin = (page..pages).find(|&page| self.is_page_free(page))?;
        let end = (begin..pages).find(|&page| !self.is_page_free(page)).unwrap_or(pages);
        Some(begin..end)
    }

    /// Returns whether a page holds only free objects, and may have content.
    fn is_page_free(&self, page: usize) -> bool {
        if self.is_dropped(page) {
            return false;
        }
        let begin = page * Host::page_bytes();
        let size = self.size.load(Relaxed);
        let (from, fresh) = (begin / size, self.handed_out());
        if from >= self.objects() {
            // Behind the last object. Nothing would ever restore the page.
            return false;
        }
        let to = (begin + Host::page_bytes()).div_ceil(size).min(fresh);
        if from >= to {
            // No object here was ever handed out. A previous slab may have left content.
            let chunk = self.first_chunk() + begin / CHUNK_BYTES;
            return ARENA.dirty_bits().has(chunk) || ARENA.is_advised(chunk);
        }
        self.bits().find(false, from, to) == to
    }

    /// Drops free pages of the slab; returns false if the system may have kept some.
    ///
    /// It does so if they are locked. The slab notes them as dropped in any case. `tag` is that of
    /// the class. The caller holds the lock of the node slabs.
    pub(crate) fn drop_pages(&self, pages: Range<usize>, tag: Tag) -> bool {
        if tag > NO_TAG && !self.has_dropped_pages() {
            self.set_tag(-tag);
        }
        pages.clone().for_each(|page| self.set_dropped(page, true));
        let (chunks, page_bytes) = (self.chunk_range(), Host::page_bytes());
        let bytes = pages.len() * page_bytes;
        ARENA.unadvise(chunks.start, chunks.len());
        // SAFETY: the slab's chunks are mapped. All objects in these pages are free in the slab.
        // The caller holds the lock without which none of them can be taken. Of their contents only
        // the marks are needed, and those are noted as erased.
        let is_done =
            unsafe { Host::discard(ARENA.address(chunks.start) + pages.start * page_bytes, bytes) };
        if is_done {
            PURGED_BYTES.fetch_add(bytes as u64, Relaxed);
        }
        is_done
    }

    /// Restores the dropped pages among some bytes of the slab.
    ///
    /// Calls `remark` for the objects that begin in them, of the first `handed_out` ones. `tag` is
    /// that of the class. The caller holds the lock of the node slabs.
    pub(crate) fn restore_pages(
        &self,
        bytes: Range<usize>,
        handed_out: usize,
        tag: Tag,
        mut remark: impl FnMut(usize),
    ) {
        let (page_bytes, size) = (Host::page_bytes(), self.size.load(Relaxed));
        for page in bytes.start / page_bytes..bytes.end.div_ceil(page_bytes) {
            if self.is_dropped(page) {
                let [from, to] =
                    [page, page + 1].map(|page| (page * page_bytes).div_ceil(size).min(handed_out));
                (from..to).for_each(|index| remark(self.object_address(index)));
                self.set_dropped(page, false);
                self.restore_tag(tag);
            }
        }
    }
}

/// Returns whether an object of a slab begins at an address, and is not free in the slab.
///
/// The owner of an object gets true. For another address, of any slab, the answer may be outdated.
pub fn is_outside_slab(address: usize) -> bool {
    let object = Slab::containing(address).and_then(|slab| slab.object_at(address));
    // Without the lock: the bit of an object outside was cleared before its owner got it, and
    // changes of other bits in the word leave it so.
    object.is_some_and(|object| object.slab.is_outside(object.index))
}

/// Diagnoses a free of an address in a slab at which no object may be freed.
pub fn error_in_slab(address: usize) -> HeapError {
    match Slab::containing(address).and_then(|slab| slab.object_at(address)) {
        None => HeapError::InteriorFree,
        Some(object) if object.index < object.slab.handed_out() => HeapError::DoubleFree,
        Some(_) => HeapError::InvalidFree,
    }
}
