//! Memory for tables that only grow: mappings of 256 KiB, handed out from their beginning.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire},
};

/// Bytes of a mapping, and its alignment.
const MAPPING_BYTES: usize = 256 * 1024;

/// A source of zeroed memory that is never returned. It takes no lock.
pub(super) struct Bump {
    /// The address of the next free byte; 0 before the first mapping.
    next: AtomicUsize,
}

impl Bump {
    pub(super) const fn new() -> Bump {
        Bump { next: AtomicUsize::new(0) }
    }

    /// Returns `bytes` zeroed bytes, aligned to 8; `None` if there is no memory.
    pub(super) fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.next_multiple_of(8);
        debug_assert!(bytes <= MAPPING_BYTES);
        loop {
            // Acquire: pairs with the AcqRel below. The mapping is there in any case; this orders
            // the uses of it.
            let next = self.next.load(Acquire);
            let end = next.next_multiple_of(MAPPING_BYTES);
            if next != 0 && next + bytes <= end {
                if self.next.compare_exchange(next, next + bytes, AcqRel, Acquire).is_ok() {
                    return NonNull::new(next as *mut u8);
                }
                continue;
            }
            let mapping = map(MAPPING_BYTES, MAPPING_BYTES)?;
            let first = mapping.as_ptr() as usize;
            if self.next.compare_exchange(next, first + bytes, AcqRel, Acquire).is_ok() {
                return Some(mapping);
            }
            // SAFETY: this thread has just mapped it, and no other knows of it.
            unsafe { libc::munmap(mapping.as_ptr().cast(), MAPPING_BYTES) };
        }
    }
}

/// Maps zeroed memory at a multiple of `align`, a power of two of at least a page.
///
/// The last byte of the address space is never part of it, so its end does not overflow.
pub(super) fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    // SAFETY: the mapping is new, so nothing else uses it. The parts before and behind the aligned
    // range are unmapped again before anything knows of them.
    unsafe {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = libc::mmap(core::ptr::null_mut(), bytes + align, access, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let first = (start as usize).next_multiple_of(align);
        let before = first - start as usize;
        if before > 0 {
            libc::munmap(start, before);
        }
        if align - before > 0 {
            libc::munmap((first + bytes) as *mut _, align - before);
        }
        NonNull::new(first as *mut u8)
    }
}
