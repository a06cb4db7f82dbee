//! Blocks at multiples of a power of two: memalign, aligned_alloc, posix_memalign, valloc and pvalloc.
//!
//! They disagree about an alignment that is no power of two: memalign rounds it up, as glibc's does;
//! aligned_alloc and posix_memalign refuse it, as C17 and POSIX say.

use core::ffi::{c_int, c_void};

use thiscpu_malloc::allocate_aligned;

use crate::c::or_enomem;
use crate::errno::{keep_errno, set_einval, set_enomem};

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    memalign_impl(align, size)
}

/// As `memalign`, for whoever has to get this library's.
#[inline(always)]
pub(crate) fn memalign_impl(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => or_enomem(allocate_aligned(size, align)),
        None => set_einval(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match align.is_power_of_two() {
        true => or_enomem(allocate_aligned(size, align)),
        false => set_einval(),
    }
}

/// Says with its result what is wrong, and leaves `errno` and what `place` holds alone then.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    match keep_errno(|| allocate_aligned(size, align)) {
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
    valloc_impl(size)
}

/// As `valloc`, for whoever has to get this library's.
#[inline(always)]
pub(crate) fn valloc_impl(size: usize) -> *mut c_void {
    or_enomem(allocate_aligned(size, page_bytes()))
}

/// Whole pages.
#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    pvalloc_impl(size)
}

/// As `pvalloc`, for whoever has to get this library's.
#[inline(always)]
pub(crate) fn pvalloc_impl(size: usize) -> *mut c_void {
    let page = page_bytes();
    match size.checked_next_multiple_of(page) {
        Some(size) => or_enomem(allocate_aligned(size, page)),
        None => set_enomem(),
    }
}

fn page_bytes() -> usize {
    // SAFETY: getauxval reads the auxiliary vector, in which the kernel states the size of pages.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}
