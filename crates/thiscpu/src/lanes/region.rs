//! Regions: reserved address space in which items are allocated, at the same offset in each lane.
//!
//! ```text
//! | header, bitmap | lane 0: shared | lane 1 | lane 2 | ... | lane lanes_max |
//!                  ^ aligned to STRIDE; each lane is STRIDE bytes
//! ```
//!
//! A lane is inaccessible until an index first needs it. Its pages are allocated by the CPU that
//! first touches them. Nothing here uses the Rust allocator. Regions are never unmapped, because a
//! late section may still load from one.

use core::ptr;

use super::table::{self, STRIDE, in_use};
use crate::error::Error;
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::bits::Bits;
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::Machine as _;

/// The granularity of items, in bytes.
const GRAIN: usize = 8;
const GRAINS: usize = STRIDE / GRAIN;
const WORDS: usize = GRAINS / 64;

/// The header of a region, which lies right before lane 0.
#[repr(C)]
struct Header {
    next: AtomicPtr<Header>,
    /// The word of `taken` at which the next search begins; nothing before it is free.
    first_free: AtomicUsize,
    /// A bitmap of grains; a grain that belongs to an item has a 1.
    taken: [AtomicU64; WORDS],
}

/// The largest page of the supported machines; a header must not share one with a lane.
const PAGE_MAX: usize = 64 * 1024;
const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(PAGE_MAX);

static LOCK: Lock = Lock::new();
/// The newest region; each points to the one before.
static NEWEST: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());
/// The number of lanes that each region has room for, or 0 before the first region.
static LANES_MAX: AtomicUsize = AtomicUsize::new(0);

/// The right to change regions: the lock, held.
pub(crate) struct Regions {
    _guard: Guard<'static>,
}

/// Takes the lock of the regions, and waits while another thread holds it.
pub(crate) fn lock() -> Regions {
    Regions::held(LOCK.lock())
}

/// Takes the lock of the regions if it is free. Never waits; async-signal-safe.
pub(crate) fn try_lock() -> Option<Regions> {
    LOCK.try_lock().map(Regions::held)
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

fn all() -> impl Iterator<Item = &'static Header> {
    // Acquire: pairs with the Release in `add_region`.
    let mut next = NEWEST.load(Acquire);
    core::iter::from_fn(move || {
        // SAFETY: a region is complete when it is published, and never unmapped.
        let header = unsafe { next.as_ref() }?;
        next = header.next.load(Acquire);
        Some(header)
    })
}

impl Header {
    /// Returns the address of lane 0.
    fn base(&self) -> usize {
        ptr::from_ref(self) as usize + HEADER_BYTES
    }

    /// Returns the header of the region of `item`, which is an address in lane 0.
    fn of(item: usize) -> &'static Header {
        let header = (item & !(STRIDE - 1)) - HEADER_BYTES;
        // SAFETY: lane 0 is aligned to its size, and the header lies right before it and is never
        // unmapped.
        unsafe { &*(header as *const Header) }
    }

    /// Finds and takes `grains` free grains at a multiple of `align` grains.
    fn take(&self, grains: usize, align: usize) -> Option<usize> {
        // Relaxed, here and below: only holders of the lock access the header.
        let first = self.first_free.load(Relaxed);
        let mut at = (first * 64).next_multiple_of(align);
        while at + grains <= GRAINS {
            match self.taken().after_last(at, at + grains) {
                after if after == at => {
                    self.taken().put(at, grains, true);
                    self.skip_full_words(first);
                    return Some(self.base() + at * GRAIN);
                }
                after => at = after.next_multiple_of(align),
            }
        }
        None
    }

    fn taken(&self) -> Bits<'_> {
        Bits(&self.taken)
    }

    /// Moves the start of the next search past words without a free grain.
    fn skip_full_words(&self, first: usize) {
        let full = self.taken[first..].iter().take_while(|word| word.load(Relaxed) == !0).count();
        self.first_free.store(first + full, Relaxed);
    }
}

impl Regions {
    /// Recovers the regions if this is the first holder of the lock after a fork.
    ///
    /// A fork in the middle of a change can leave grains that stay taken, pages that are accessible
    /// too early, and a lane that no index leads to. Only the last matters.
    fn held(guard: Guard<'static>) -> Regions {
        if guard.first_in_generation {
            table::reclaim_orphaned_lane();
        }
        Regions { _guard: guard }
    }

    /// Allocates `size` zeroed bytes in each lane; returns their address in lane 0.
    pub(crate) fn allocate(&mut self, size: usize, align: usize) -> Result<usize, Error> {
        if size > STRIDE {
            return Err(Error::ItemTooLarge { bytes: size, largest: STRIDE });
        }
        let grains = size.div_ceil(GRAIN).max(1);
        let align = align.div_ceil(GRAIN).max(1);
        if let Some(item) = all().find_map(|region| region.take(grains, align)) {
            return Ok(item);
        }
        let region = self.add_region()?;
        region.take(grains, align).ok_or(Error::ItemTooLarge { bytes: size, largest: STRIDE })
    }

    /// Zeroes an item in every lane and frees it.
    pub(crate) fn free(&mut self, item: usize, size: usize) {
        for lane in 0..=in_use() {
            zero(item + lane * STRIDE, size);
        }
        let region = Header::of(item);
        let at = (item - region.base()) / GRAIN;
        region.taken().put(at, size.div_ceil(GRAIN).max(1), false);
        region.first_free.fetch_min(at / 64, Relaxed);
    }

    /// Makes a lane accessible in every region, and returns whether that worked.
    pub(crate) fn open_lane(&mut self, lane: usize) -> bool {
        all().all(|region| Host::commit(region.base() + lane * STRIDE, STRIDE).is_ok())
    }

    /// Reserves a region, and commits its header and the lanes in use.
    fn add_region(&mut self) -> Result<&'static Header, Error> {
        let lanes = lanes_max();
        let bytes = HEADER_BYTES + (lanes + 1) * STRIDE;
        let no_space = |errno| Error::NoAddressSpace { bytes, lanes, errno };
        let base = Host::reserve(HEADER_BYTES, bytes - HEADER_BYTES, STRIDE).map_err(no_space)?;
        let header = base - HEADER_BYTES;
        if let Err(errno) = Host::commit(header, HEADER_BYTES + (in_use() + 1) * STRIDE) {
            // SAFETY: the range was just reserved here, and no other code knows it.
            unsafe { Host::unmap(header, bytes) };
            return Err(no_space(errno));
        }
        // SAFETY: the memory is accessible and never unmapped. It is all zeros, which is a valid
        // header.
        let region = unsafe { &*(header as *const Header) };
        // Relaxed: only holders of the lock store `NEWEST`, and the Release below publishes `next`.
        region.next.store(NEWEST.load(Relaxed), Relaxed);
        // Release: pairs with the Acquire in `all`.
        NEWEST.store(header as *mut Header, Release);
        Ok(region)
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
