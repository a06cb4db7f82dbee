//! The header of a region, and the columns that the header describes.

use core::ptr;

use super::list::Links;
use crate::lanes::table::STRIDE;
use crate::sys::Host;
use crate::sys::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sys::bits::Bits;
use crate::sys::machine::Machine as _;

/// The granularity of items, in bytes.
pub(super) const GRAIN: usize = 8;

/// The smallest and the largest page of the supported machines.
const PAGE_MIN: usize = 4 * 1024;
const PAGE_MAX: usize = 64 * 1024;
const COLUMNS_MAX: usize = STRIDE / PAGE_MIN;

/// The header of a region, which lies right before lane 0.
///
/// Holders of the regions' lock access it, so all accesses are relaxed, except those to `next`.
#[repr(C, align(64))]
pub(super) struct Header {
    /// The state of each column, [`state_bytes`] apart.
    columns: [AtomicU64; COLUMNS_MAX * state_bytes(PAGE_MIN) / 8],
    pub(super) next: AtomicPtr<Header>,
    /// The columns that hold nothing, as a mask.
    pub(super) free: AtomicU64,
    /// The free columns that may have pages.
    pub(super) dirty: AtomicU64,
    /// The columns whose pages a thread returns to the system right now.
    pub(super) purging: AtomicU64,
    /// One more than the number of the region's list in `free_columns::ROOM`, or 0.
    pub(super) room: AtomicU32,
    pub(super) room_links: Links,
    pub(super) dirty_links: Links,
}

/// A header must not share a page with a lane.
pub(super) const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(PAGE_MAX);

/// The state of a column, with which a bit for each of its slots follows.
///
/// The bits of all but the smallest items are in the cache line that begins here.
#[repr(C)]
struct State {
    /// What the column holds, as encoded by [`Content`].
    content: AtomicU32,
    /// The number of slots in use.
    used: AtomicU32,
    links: Links,
}

/// A page of lane 0, and the pages at the same offset in all other lanes.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) region: &'static Header,
    pub(super) at: usize,
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing, or the rest of an item that begins in an earlier column.
    None,
    /// Slots of that many grains.
    Slots(usize),
    /// An item that begins here and takes that many columns.
    Run(usize),
}

/// Returns the distance of the state of a column from the next one.
const fn state_bytes(column_bytes: usize) -> usize {
    (size_of::<State>() + column_bytes / GRAIN / 8).next_multiple_of(64)
}

// Larger pages have larger states, but fewer, and all fit.
const _: () = assert!(STRIDE / PAGE_MAX * state_bytes(PAGE_MAX) <= COLUMNS_MAX * 128);
const _: () = assert!(state_bytes(PAGE_MIN) == 128);

/// The bit that tells a run from slots.
const RUN: u32 = 1 << 31;

/// Returns the bytes of a column in each lane: a page.
pub(super) fn column_bytes() -> usize {
    Host::page_bytes().clamp(PAGE_MIN, PAGE_MAX)
}

/// Returns the number of columns of a region.
pub(super) fn columns() -> usize {
    STRIDE / column_bytes()
}

/// Returns a mask of `count` columns from `at` on.
pub(super) fn mask(at: usize, count: usize) -> u64 {
    (!0 >> (64 - count)) << at
}

impl Header {
    /// Returns the address of lane 0.
    pub(super) fn base(&self) -> usize {
        ptr::from_ref(self) as usize + HEADER_BYTES
    }

    /// Returns the header that contains `links`.
    pub(super) fn of_links(links: &'static Links) -> &'static Header {
        Header::before(links.address().next_multiple_of(STRIDE))
    }

    /// Returns the header of the region whose lane 0 begins at `base`.
    fn before(base: usize) -> &'static Header {
        // SAFETY: lane 0 is aligned to its size, and the header lies right before it and is never
        // unmapped.
        unsafe { &*((base - HEADER_BYTES) as *const Header) }
    }

    pub(super) fn column(&'static self, at: usize) -> Column {
        Column { region: self, at }
    }
}

impl Column {
    /// Returns the column in which an item begins.
    pub(super) fn of(item: usize) -> Column {
        let base = item & !(STRIDE - 1);
        Header::before(base).column((item - base) / column_bytes())
    }

    /// Returns the column with these links.
    pub(super) fn of_links(links: &'static Links) -> Column {
        let region = Header::of_links(links);
        let distance = links.address() - region.columns.as_ptr() as usize;
        region.column(distance / state_bytes(column_bytes()))
    }

    fn state(self) -> &'static State {
        let bytes = state_bytes(column_bytes());
        let state = &raw const self.region.columns[self.at * bytes / 8];
        // SAFETY: the header has room for the state of each column, and was zeros when it was made,
        // which is a valid state. Headers are never unmapped.
        unsafe { &*state.cast() }
    }

    /// Starts to load the state.
    pub(super) fn prefetch(self) {
        Host::prefetch(ptr::from_ref(self.state()) as usize);
    }

    /// Returns the address of the column in lane 0.
    pub(super) fn address(self) -> usize {
        self.region.base() + self.at * column_bytes()
    }

    pub(super) fn links(self) -> &'static Links {
        &self.state().links
    }

    pub(super) fn content(self) -> Content {
        match self.state().content.load(Relaxed) {
            0 => Content::None,
            run if run & RUN != 0 => Content::Run((run & !RUN) as usize),
            slot => Content::Slots(slot as usize),
        }
    }

    pub(super) fn set_content(self, content: Content) {
        let encoded = match content {
            Content::None => 0,
            Content::Slots(grains) => grains as u32,
            Content::Run(columns) => columns as u32 | RUN,
        };
        self.state().content.store(encoded, Relaxed);
    }

    pub(super) fn used(self) -> usize {
        self.state().used.load(Relaxed) as usize
    }

    pub(super) fn set_used(self, used: usize) {
        self.state().used.store(used as u32, Relaxed);
    }

    /// Returns a bit for each slot, which is set while the slot is in use.
    pub(super) fn taken(self) -> Bits<'static> {
        let bytes = state_bytes(column_bytes());
        let first = (self.at * bytes + size_of::<State>()) / 8;
        Bits(&self.region.columns[first..][..column_bytes() / GRAIN / 64])
    }
}
