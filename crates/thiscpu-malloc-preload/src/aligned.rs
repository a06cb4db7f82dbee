//! Blocks at multiples of a power of two: memalign, aligned_alloc, posix_memalign, valloc and pvalloc.
//!
//! They disagree about an alignment that is no power of two: memalign rounds it up, as glibc's does;
//! aligned_alloc and posix_memalign refuse it, as C17 and POSIX say.

use core::ffi::{c_int, c_void};

use thiscpu_malloc::allocate_aligned;

use crate::c::or_no_memory;
use crate::errno::{invalid, kept, out_of_memory};

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    at_multiple(align, size)
}

/// As `memalign`, for whoever has to get this library's.
#[inline(always)]
pub(crate) fn at_multiple(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => or_no_memory(allocate_aligned(size, align)),
        None => invalid(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match align.is_power_of_two() {
        true => or_no_memory(allocate_aligned(size, align)),
        false => invalid(),
    }
}

/// Says with its result what is wrong, and leaves `errno` and what `place` holds alone then.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    match kept(|| allocate_aligned(size, align)) {
        Some(block) => {
            // SAFETY: the caller's promise.
            unsafe { place.write(block.as_ptr().cast()) };
            0
        }
        None => libc::ENOMEM,
    }
}

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    at_page(size)
}

/// As `valloc`, for whoever has to get this library's.
#[inline(always)]
pub(crate) fn at_page(size: usize) -> *mut c_void {
    or_no_memory(allocate_aligned(size, page_bytes()))
}

/// Whole pages.
#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    whole_pages(size)
}

/// As `pvalloc`, for whoever has to get this library's.
#[inline(always)]
pub(crate) fn whole_pages(size: usize) -> *mut c_void {
    let page = page_bytes();
    match size.checked_next_multiple_of(page) {
        Some(size) => or_no_memory(allocate_aligned(size, page)),
        None => out_of_memory(),
    }
}

fn page_bytes() -> usize {
    // SAFETY: getauxval reads the auxiliary vector, in which the kernel states the size of pages.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}
