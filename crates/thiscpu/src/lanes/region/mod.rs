//! Regions: reserved address space in which items are allocated, at the same offset in each lane.
//!
//! ```text
//! | header | lane 0: shared | lane 1 | lane 2 | ... | lane lanes_max |
//!          ^ aligned to STRIDE; each lane is STRIDE bytes
//! ```
//!
//! A region is divided into columns: a column is a page of lane 0, and the pages at that offset in
//! all other lanes. It holds small items of one size, in slots. A large item takes several columns.
//! When the last item of a column is freed, its pages return to the system, except for a bounded
//! number. All free memory reads as zeros.
//!
//! A lane is inaccessible until an index first needs it. Its pages are allocated by the CPU that
//! first touches them. Nothing here uses the Rust allocator. Regions are never unmapped, because a
//! late section may still load from one.
//!
//! - `header`: the header of a region, and columns;
//! - `slots`: items that share a column;
//! - `free_columns`: columns without items, and their pages;
//! - `list`: lists of columns and of regions;
//! - `handles`: regions with a single lane, for the handles of C;
//! - `recover`: recovery after a fork.

mod free_columns;
#[cfg(not(thiscpu_model))]
pub mod handles;
mod header;
mod list;
mod recover;
mod slots;

use core::ptr;

use self::free_columns::FreeColumns;
use self::header::{Column, Content, GRAIN, HEADER_BYTES, Header, column_bytes};
use self::slots::{Slots, slot_grains};
use super::table::{self, STRIDE, in_use};
use crate::error::Error;
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::degradation::{self, DegradationKind};
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::Machine as _;

/// Regions of one kind, with a lock.
struct Heap {
    lock: Lock,
    /// The newest region; each points to the one before.
    newest: AtomicPtr<Header>,
    slots: Slots,
    free: FreeColumns,
    /// Whether regions have all lanes, and not only lane 0.
    has_lanes: bool,
}

/// The regions of per-CPU data.
static LANES: Heap = Heap::new(true);
/// The number of lanes that each region has room for, or 0 before the first region.
static LANES_MAX: AtomicUsize = AtomicUsize::new(0);

/// The right to change regions: the lock of their heap, held.
pub(crate) struct Regions {
    heap: &'static Heap,
    _guard: Guard<'static>,
}

/// Takes the lock of the regions, and waits while another thread holds it.
pub(crate) fn lock() -> Regions {
    LANES.lock()
}

/// Takes the lock of the regions if it is free. Never waits; async-signal-safe.
pub(crate) fn try_lock() -> Option<Regions> {
    LANES.lock.try_lock().map(|guard| LANES.held(guard))
}

/// Returns how many lanes regions have room for: the CPUs that this machine can ever have.
pub(crate) fn lanes_max() -> usize {
    // Relaxed: the number leads to nothing else.
    match LANES_MAX.load(Relaxed) {
        0 => {
            let lanes = Host::cpus().max(1);
            // The first answer stands, because regions are laid out by it.
            LANES_MAX.compare_exchange(0, lanes, Relaxed, Relaxed).err().unwrap_or(lanes)
        }
        lanes => lanes,
    }
}

/// Zeroes an item in every lane and frees it. Waits for the lock of the regions.
///
/// No section stores to the item any more: the owner frees it after the last call that uses it.
pub(crate) fn free(item: usize, size: usize) {
    // A lane that is taken into use later has zeros there.
    let lanes = || (0..=in_use()).map(|lane| item + lane * STRIDE);
    // The item is a cache miss in each lane if it was not used for long. Without prefetches the
    // processor would begin each miss only after the previous one: it cannot predict the tests in
    // `zero`.
    lanes().for_each(Host::prefetch);
    Column::of(item).prefetch();
    lanes().for_each(|address| zero(address, size));
    LANES.free(item);
}

impl Heap {
    const fn new(has_lanes: bool) -> Heap {
        Heap {
            lock: Lock::new(),
            newest: AtomicPtr::new(ptr::null_mut()),
            slots: Slots::new(),
            free: FreeColumns::new(),
            has_lanes,
        }
    }

    fn lock(&'static self) -> Regions {
        self.held(self.lock.lock())
    }

    /// Recovers the regions if this is the first holder of the lock after a fork.
    ///
    /// A fork in the middle of a change can leave slots that stay in use, pages that are accessible
    /// too early, and a lane that no index leads to.
    fn held(&'static self, guard: Guard<'static>) -> Regions {
        if guard.first_in_generation {
            if self.has_lanes {
                table::reclaim_orphaned_lane();
            }
            if guard.owner_died || self.free.was_purging() {
                self.recover();
            }
        }
        Regions { heap: self, _guard: guard }
    }

    fn regions(&self) -> impl Iterator<Item = &'static Header> {
        // Acquire: pairs with the Release in `add_region`.
        let mut next = self.newest.load(Acquire);
        core::iter::from_fn(move || {
            // SAFETY: a region is complete when it is published, and never unmapped.
            let header = unsafe { next.as_ref() }?;
            next = header.next.load(Acquire);
            Some(header)
        })
    }

    /// Returns how many lanes of a region are in use, lane 0 included.
    fn lanes_in_use(&self) -> usize {
        if self.has_lanes { in_use() + 1 } else { 1 }
    }

    /// Frees an item, and returns the pages of some free columns if there are too many.
    fn free(&'static self, item: usize) {
        let column = Column::of(item);
        // The content cannot change while the item is there. Its cache line, which the lock's
        // holder needs, comes before the lock is taken.
        let content = column.content();
        let mut regions = self.lock();
        let freed = regions.release(column, content, item);
        let mut most = if freed > 0 { freed + 1 } else { 0 };
        while let Some(purge) = self.free.begin_purge(most) {
            most -= purge.count;
            drop(regions);
            purge.discard(self.lanes_in_use());
            regions = self.lock();
            self.free.end_purge(purge);
        }
    }
}

impl Regions {
    /// Allocates `size` zeroed bytes in each lane; returns their address in lane 0.
    ///
    /// The alignment is at most a page.
    pub(crate) fn allocate(&mut self, size: usize, align: usize) -> Result<usize, Error> {
        if size > STRIDE {
            return Err(Error::ItemTooLarge { bytes: size, largest: STRIDE });
        }
        let Heap { slots, free, .. } = self.heap;
        let take = || match slot_grains(size, align) {
            Some(grains) => slots.take(free, grains),
            None => {
                let count = size.div_ceil(column_bytes());
                free.take(count, Content::Run(count)).map(Column::address)
            }
        };
        if let Some(item) = take() {
            return Ok(item);
        }
        self.add_region()?;
        take().ok_or(Error::ItemTooLarge { bytes: size, largest: STRIDE })
    }

    /// Frees an item; returns how many columns became free.
    fn release(&mut self, column: Column, content: Content, item: usize) -> usize {
        let heap = self.heap;
        let count = match content {
            Content::Slots(grains) if heap.slots.release(column, grains, item) => 1,
            Content::Run(count) => count,
            _ => return 0,
        };
        heap.free.release(column, count);
        count
    }

    /// Allocates as [`allocate`](Self::allocate) does, for a structure that can do without.
    ///
    /// Notes the degradation if there is no memory.
    pub(crate) fn allocate_if_possible(&mut self, size: usize, align: usize) -> Option<usize> {
        let allocated = self.allocate(size, align);
        if let Err(error) = &allocated {
            let errno = if let Error::NoAddressSpace { errno, .. } = error { *errno } else { 0 };
            degradation::note(DegradationKind::Items, errno);
        }
        allocated.ok()
    }

    /// Makes a lane accessible in every region; returns the error number if that fails.
    pub(crate) fn open_lane(&mut self, lane: usize) -> Result<(), i32> {
        let commit = |region: &Header| Host::commit(region.base() + lane * STRIDE, STRIDE);
        self.heap.regions().try_for_each(commit)
    }

    /// Reserves a region, and commits its header and the lanes in use.
    fn add_region(&mut self) -> Result<(), Error> {
        let lanes = if self.heap.has_lanes { lanes_max() } else { 0 };
        let bytes = HEADER_BYTES + (lanes + 1) * STRIDE;
        let no_space = |errno| Error::NoAddressSpace { bytes, lanes, errno };
        let base = Host::reserve(HEADER_BYTES, bytes - HEADER_BYTES, STRIDE).map_err(no_space)?;
        let header = base - HEADER_BYTES;
        let committed = HEADER_BYTES + self.heap.lanes_in_use() * STRIDE;
        if let Err(errno) = Host::commit(header, committed) {
            // SAFETY: the range was just reserved here, and no other code knows it.
            unsafe { Host::unmap(header, bytes) };
            return Err(no_space(errno));
        }
        // SAFETY: the memory is accessible and never unmapped. It is all zeros, which is a valid
        // header.
        let region = unsafe { &*(header as *const Header) };
        let newest = &self.heap.newest;
        // Relaxed: only holders of the lock store `newest`, and the Release below publishes `next`.
        region.next.store(newest.load(Relaxed), Relaxed);
        // Release: pairs with the Acquire in `regions`.
        newest.store(header as *mut Header, Release);
        self.heap.free.add(region);
        Ok(())
    }
}

/// Zeroes memory, but does not store to words that are 0 already, so that they get no pages.
fn zero(address: usize, size: usize) {
    // SAFETY: the bytes belong to an item that is being freed, in an accessible lane. Its owner is
    // gone, so no section uses it any more. Its address is a multiple of 8, and it owns whole
    // grains.
    let words =
        unsafe { core::slice::from_raw_parts(address as *const AtomicU64, size.div_ceil(GRAIN)) };
    for word in words {
        if word.load(Relaxed) != 0 {
            word.store(0, Relaxed);
        }
    }
}
