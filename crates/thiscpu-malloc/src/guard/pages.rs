//! The pages of the pool: one per slot, with an inaccessible page before and after each.
//!
//! One mapping holds the pool's metadata, the stack for reports, and the pages. The page of a slot
//! without a block is inaccessible too, and its memory is returned to the system.

use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::quarantine::SLOTS;

/// The size of the report stack: enough for unoptimized code.
///
/// A program's own signal stack may be as small as 8 KiB.
const REPORT_STACK_BYTES: usize = 128 << 10;

// Relaxed, for all three: they are stored before the Release in `pool::init` publishes the pool. A
// thread that asks about a guarded block got that block after its Acquire in `pool::get`, or from a
// thread that did.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The address of the first page, which is inaccessible.
static START: AtomicUsize = AtomicUsize::new(0);
/// The size of all pages. The last one is inaccessible too.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns whether an address lies in the pool. Costs two loads and a comparison.
#[inline(always)]
pub(super) fn owns(address: usize) -> bool {
    address.wrapping_sub(START.load(Relaxed)) < BYTES.load(Relaxed)
}

/// Maps the pages, once, and returns `metadata_bytes` of zeroed memory in front of them.
///
/// Returns `None` if memory is exhausted.
pub(super) fn reserve(metadata_bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let metadata = (metadata_bytes + REPORT_STACK_BYTES).next_multiple_of(page);
    let pages = (2 * SLOTS + 1) * page;
    // SAFETY: the mapping is new, so nothing else uses it; its first part is made accessible.
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

/// Returns whether a block of `span` bytes fits a page.
pub(super) fn fits_page(span: usize) -> bool {
    span <= page_bytes()
}

/// Returns the size of a page.
pub(super) fn page_bytes() -> usize {
    PAGE_BYTES.load(Relaxed)
}

/// Returns the end of the report stack, which one thread at a time may use.
pub(super) fn report_stack() -> usize {
    START.load(Relaxed)
}

/// The position of an address in the pool.
pub(super) enum PoolAddress {
    /// On the page of a slot.
    Slot(usize),
    /// On the page between two slots. The first and the last such page have one neighbor.
    Between { before: Option<usize>, after: Option<usize> },
}

/// Returns the position of an address that the pool owns.
pub(super) fn locate(address: usize) -> PoolAddress {
    let index = (address - START.load(Relaxed)) / page_bytes();
    match index % 2 {
        1 => PoolAddress::Slot(index / 2),
        _ => PoolAddress::Between {
            before: (index / 2).checked_sub(1),
            after: Some(index / 2).filter(|&slot| slot < SLOTS),
        },
    }
}

/// Returns the page of a slot.
pub(super) fn page(slot: usize) -> Range<usize> {
    let start = START.load(Relaxed) + (2 * slot + 1) * page_bytes();
    start..start + page_bytes()
}

/// Makes a slot's page accessible; its bytes are zero. Returns whether that worked.
pub(super) fn open(slot: usize) -> bool {
    // SAFETY: the page belongs to the pool's mapping.
    unsafe {
        libc::mprotect(page(slot).start as *mut _, page_bytes(), libc::PROT_READ | libc::PROT_WRITE)
            == 0
    }
}

/// Makes a slot's page inaccessible, and then drops its contents.
///
/// In the opposite order, a write could come in between. If the kernel refuses, because the process
/// has too many mappings, uses of the freed block are missed.
pub(super) fn close(slot: usize) {
    let (start, bytes) = (page(slot).start as *mut _, page_bytes());
    // SAFETY: the page belongs to the pool's mapping, and its block is freed.
    unsafe {
        libc::mprotect(start, bytes, libc::PROT_NONE);
        if libc::madvise(start, bytes, libc::MADV_DONTNEED) != 0 {
            // The kernel does not drop memory that the program has locked (`mlockall`).
            libc::munlock(start, bytes);
            libc::madvise(start, bytes, libc::MADV_DONTNEED);
        }
    }
}
