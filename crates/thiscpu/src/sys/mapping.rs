//! Address space: reserved and then committed piece by piece, or mapped at chosen addresses.

use core::ptr;

use super::errno;

/// Returns the size of a page that is not huge, in bytes.
pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Reserves `before + bytes` of address space.
///
/// Returns the address `before` bytes into it, which is a multiple of `align`. The range is not
/// accessible, and `mlockall` does not fill it. None of it becomes a huge page, which would make a
/// lane's first page cost 2 MiB.
pub(crate) fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32> {
    let whole = before + bytes + align;
    // SAFETY: a new mapping aliases nothing, and only parts of it are unmapped again.
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
        // Both are advice: if they fail, lanes work and cost more memory.
        libc::madvise(first as *mut _, end - first, libc::MADV_NOHUGEPAGE);
        libc::munlock(first as *const _, end - first);
        Ok(base)
    }
}

/// Makes memory from `reserve` or `map_zeros_at` accessible.
pub(crate) fn commit(address: usize, bytes: usize) -> Result<(), i32> {
    // SAFETY: callers pass parts of ranges that they reserved here, and that no Rust object is in.
    let result =
        unsafe { libc::mprotect(address as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Maps zeros at `address`, or fails with `EEXIST` if something is mapped there.
///
/// None of it becomes a huge page until `prefer_huge_pages`. In a program that locks its future
/// memory, this memory is locked too.
pub(crate) fn map_at(address: usize, bytes: usize) -> Result<(), i32> {
    map_with(address, bytes, libc::PROT_READ | libc::PROT_WRITE)
}

/// Maps zeros at `address` that are only readable until `commit`, or fails as `map_at` does.
///
/// They do not count as data, and not as committed memory. In a program that locks its future
/// memory they are not filled with pages, because the mapping starts without access.
pub(crate) fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32> {
    map_with(address, bytes, libc::PROT_NONE)?;
    // SAFETY: the range was just mapped here, and no other code knows it.
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
    // SAFETY: a new mapping that replaces nothing. If the kernel puts it elsewhere, it is unmapped.
    unsafe {
        let flags = FLAGS | libc::MAP_FIXED_NOREPLACE;
        let start = libc::mmap(address as *mut _, bytes, access, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(errno::last());
        }
        if start as usize != address {
            // Kernels before 4.17 take the address as a hint.
            libc::munmap(start, bytes);
            return Err(libc::EEXIST);
        }
        libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
        Ok(())
    }
}

/// Returns whether every page of a range is mapped.
pub(crate) fn is_mapped(address: usize, bytes: usize) -> bool {
    // SAFETY: msync changes no memory. It may write mapped files back, which the kernel does at any
    // time.
    unsafe { libc::msync(address as *mut _, bytes, libc::MS_ASYNC) == 0 }
}

/// Finds free address space at a multiple of `align`.
///
/// It is not reserved, so another thread may map something there.
pub(crate) fn find_gap(bytes: usize, align: usize) -> Result<usize, i32> {
    let start = reserve(0, bytes, align)?;
    // SAFETY: the range was just reserved here, and no other code knows it.
    unsafe { unmap(start, bytes) };
    Ok(start)
}

/// Drops the pages of accessible memory, which reads as zeros from then on.
///
/// Returns whether that worked; it fails for locked pages.
///
/// # Safety
///
/// The caller mapped the range by a function of this file, and no code needs its contents.
pub(crate) unsafe fn discard(address: usize, bytes: usize) -> bool {
    // SAFETY: no code needs the contents, as the caller guarantees; the range stays accessible.
    unsafe { libc::madvise(address as *mut _, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Advises whether to back memory from `map_at` with huge pages, where whole ones fit.
///
/// Returns whether the kernel took the advice: it may have no huge pages, or too many mappings.
pub(crate) fn prefer_huge_pages(address: usize, bytes: usize, is_wanted: bool) -> bool {
    let advice = if is_wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: the advice does not change the contents of memory.
    unsafe { libc::madvise(address as *mut _, bytes, advice) == 0 }
}

/// Unmaps a range.
///
/// # Safety
///
/// The caller mapped the range by a function of this file, and no code uses it any more.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller guarantees that it mapped the range and that no code uses it.
    unsafe { libc::munmap(address as *mut _, bytes) };
}
