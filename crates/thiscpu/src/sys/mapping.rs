//! Address space: reserved first and made accessible piece by piece, or mapped at chosen places.

use core::ptr;

use super::errno;

/// Returns the size of a page that is not huge, in bytes.
pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

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

/// Makes reserved memory, or such zeros, accessible.
pub(crate) fn open(address: usize, bytes: usize) -> Result<(), i32> {
    // SAFETY: the range is part of what was mapped here for that.
    let result =
        unsafe { libc::mprotect(address as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Maps memory at an address, if nothing is mapped there; `EEXIST` if something is. It becomes no huge pages unless they are asked for.
/// A program that has locked its future memory gets this locked too.
pub(crate) fn map_at(address: usize, bytes: usize) -> Result<(), i32> {
    map_with(address, bytes, libc::PROT_READ | libc::PROT_WRITE)
}

/// Maps zeros at an address that can be read, if nothing is mapped there; `open` has them written to. They are no data to a limit on that, nor promised
/// memory; nor are they filled where future memory is locked, since at first nothing may be done with them.
pub(crate) fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32> {
    map_with(address, bytes, libc::PROT_NONE)?;
    // SAFETY: just mapped, and nobody's.
    unsafe {
        if libc::mprotect(address as *mut _, bytes, libc::PROT_READ) != 0 {
            let error = errno::last();
            unmap(address, bytes);
            return Err(error);
        }
    }
    Ok(())
}

fn map_with(address: usize, bytes: usize, access: i32) -> Result<(), i32> {
    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping that replaces nothing; where the kernel puts it elsewhere it is unmapped again.
    unsafe {
        let flags = FLAGS | libc::MAP_FIXED_NOREPLACE;
        let start = libc::mmap(address as *mut _, bytes, access, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(errno::last());
        }
        if start as usize != address {
            // Kernels before 4.17 take the address as a wish.
            libc::munmap(start, bytes);
            return Err(libc::EEXIST);
        }
        libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
        Ok(())
    }
}

/// Whether all of a range of pages is mapped.
pub(crate) fn is_mapped(address: usize, bytes: usize) -> bool {
    // SAFETY: it changes no memory: there is nothing to write where no file is mapped, and where one is that may be done at any time.
    unsafe { libc::msync(address as *mut _, bytes, libc::MS_ASYNC) == 0 }
}

/// Where so much address space is that nothing is mapped in, at a multiple of `align`; for the moment, because it is not kept.
pub(crate) fn gap(bytes: usize, align: usize) -> Result<usize, i32> {
    let start = reserve(0, bytes, align)?;
    // SAFETY: just reserved, and nobody's.
    unsafe { unmap(start, bytes) };
    Ok(start)
}

/// Drops what accessible memory holds, which is zero from then on; whether that worked: locked pages stay.
///
/// # Safety
///
/// The range is the caller's, from above, and nobody needs what it holds.
pub(crate) unsafe fn forget(address: usize, bytes: usize) -> bool {
    // SAFETY: the caller's promise; the addresses stay accessible.
    unsafe { libc::madvise(address as *mut _, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Whether memory from `map_at` is to be made of huge pages, where whole ones fit. Advice: a kernel may have none, or be out of mappings.
pub(crate) fn prefer_huge_pages(address: usize, bytes: usize, is_wanted: bool) -> bool {
    let advice = if is_wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: it changes nothing of what memory holds.
    unsafe { libc::madvise(address as *mut _, bytes, advice) == 0 }
}

/// Ends a mapping.
///
/// # Safety
///
/// The range is the caller's, from above, and nobody uses it.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(address as *mut _, bytes) };
}
