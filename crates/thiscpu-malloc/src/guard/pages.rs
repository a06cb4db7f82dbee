//! The pages of the pool: one for each slot, with an inaccessible page before and behind each of them.
//!
//! All is one reservation: what the pool knows, the stack that reports are written on, and the pages. A slot without
//! a block is inaccessible too, and its memory has gone back to the system.

use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::quarantine::SLOTS;

/// Enough for a report without optimization; a program's own stack for signals may be as small as 8 KiB.
const REPORT_STACK_BYTES: usize = 128 << 10;

// Relaxed, all three: stored before the pool is published, and who asks about one of its blocks got that from the pool.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The first and the last inaccessible page lie within.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether an address lies in the pool. Two loads and a comparison; false before there is one.
#[inline(always)]
pub(super) fn owns(address: usize) -> bool {
    address.wrapping_sub(START.load(Relaxed)) < BYTES.load(Relaxed)
}

/// Reserves them; returns `metadata_bytes` of zeroed memory in front of them. Once; none if there is no memory.
pub(super) fn reserve(metadata_bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: reads a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let metadata = (metadata_bytes + REPORT_STACK_BYTES).next_multiple_of(page);
    let pages = (2 * SLOTS + 1) * page;
    // SAFETY: a fresh mapping, the first part of which is made accessible.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(ptr::null_mut(), metadata + pages, libc::PROT_NONE, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        if libc::mprotect(start, metadata, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            libc::munmap(start, metadata + pages);
            return None;
        }
        start
    };
    PAGE_BYTES.store(page, Relaxed);
    START.store(start as usize + metadata, Relaxed);
    BYTES.store(pages, Relaxed);
    NonNull::new(start.cast())
}

/// Whether a block may take so many bytes.
pub(super) fn fits_page(span: usize) -> bool {
    span <= page_bytes()
}

pub(super) fn page_bytes() -> usize {
    PAGE_BYTES.load(Relaxed)
}

/// The end of the stack that reports are written on, which one may be at a time.
pub(super) fn report_stack() -> usize {
    START.load(Relaxed)
}

/// Where an address of the pool is.
pub(super) enum PoolAddress {
    /// On the page of a slot.
    Slot(usize),
    /// On the page between two slots, of which the outermost have one neighbour.
    Between { before: Option<usize>, behind: Option<usize> },
}

/// Where that is.
pub(super) fn locate(address: usize) -> PoolAddress {
    let index = (address - START.load(Relaxed)) / page_bytes();
    match index % 2 {
        1 => PoolAddress::Slot(index / 2),
        _ => PoolAddress::Between {
            before: (index / 2).checked_sub(1),
            behind: Some(index / 2).filter(|&slot| slot < SLOTS),
        },
    }
}

/// The page of a slot.
pub(super) fn page(slot: usize) -> Range<usize> {
    let start = START.load(Relaxed) + (2 * slot + 1) * page_bytes();
    start..start + page_bytes()
}

/// Makes a slot's page accessible, all zero; whether that worked.
pub(super) fn open(slot: usize) -> bool {
    // SAFETY: the pool's page.
    unsafe {
        libc::mprotect(page(slot).start as *mut _, page_bytes(), libc::PROT_READ | libc::PROT_WRITE)
            == 0
    }
}

/// Makes a slot's page inaccessible, and then drops its contents: the other way round somebody might write in between.
/// Where the kernel refuses (it has no room for another mapping), uses of a freed block go unseen.
pub(super) fn close(slot: usize) {
    let (start, bytes) = (page(slot).start as *mut _, page_bytes());
    // SAFETY: the pool's page, which holds no block.
    unsafe {
        libc::mprotect(start, bytes, libc::PROT_NONE);
        if libc::madvise(start, bytes, libc::MADV_DONTNEED) != 0 {
            // Memory that the program has locked is not dropped.
            libc::munlock(start, bytes);
            libc::madvise(start, bytes, libc::MADV_DONTNEED);
        }
    }
}
