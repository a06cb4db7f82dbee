//! Address space that is reserved first and made accessible piece by piece.

use core::ptr;

use super::errno;

/// Reserves `before + bytes` of address space such that `before` bytes into it is a multiple of
/// `align`; returns that place. Nothing of it is accessible, none of it ever becomes a huge page (a
/// lane's first page would cost 2 MiB), and `mlockall` does not fill it.
pub(crate) fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32> {
    let whole = before + bytes + align;
    // SAFETY: a fresh mapping; the parts that are unmapped again are this function's own.
    unsafe {
        let start = libc::mmap(
            ptr::null_mut(),
            whole,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            return Err(errno::last());
        }
        let start = start as usize;
        let base = (start + before).next_multiple_of(align);
        let (first, end) = (base - before, base + bytes);
        if first > start {
            libc::munmap(start as *mut _, first - start);
        }
        if start + whole > end {
            libc::munmap(end as *mut _, start + whole - end);
        }
        // Both are advice: without them the lanes work and cost more memory.
        libc::madvise(first as *mut _, end - first, libc::MADV_NOHUGEPAGE);
        libc::munlock(first as *const _, end - first);
        Ok(base)
    }
}

/// Makes reserved memory accessible.
pub(crate) fn open(address: usize, bytes: usize) -> Result<(), i32> {
    // SAFETY: the range is part of a reservation made above.
    let result =
        unsafe { libc::mprotect(address as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Ends a mapping.
///
/// # Safety
///
/// The range is part of a reservation made above, and nobody uses it.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(address as *mut _, bytes) };
}
