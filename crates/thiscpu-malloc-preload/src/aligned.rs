//! Aligned blocks: memalign, aligned_alloc, posix_memalign, valloc and pvalloc.
//!
//! These functions treat an alignment that is not a power of two differently. memalign rounds it
//! up, like glibc's; aligned_alloc and posix_memalign refuse it, as C17 and POSIX require.
//!
//! A function named `..._impl` is what the symbol does, for callers that must not call the symbol,
//! because a program may have replaced it.

use core::ffi::{c_int, c_void};

use thiscpu_malloc::allocate_aligned;

use crate::c::or_enomem;
use crate::errno::{keep_errno, set_einval, set_enomem};

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    memalign_impl(align, size)
}

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

/// Returns an error number, and then leaves `errno` and `*block` unchanged.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    match keep_errno(|| allocate_aligned(size, align)) {
        Some(allocated) => {
            // SAFETY: the caller guarantees that `block` may be written to.
            unsafe { block.write(allocated.as_ptr().cast()) };
            0
        }
        None => libc::ENOMEM,
    }
}

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    valloc_impl(size)
}

#[inline(always)]
pub(crate) fn valloc_impl(size: usize) -> *mut c_void {
    or_enomem(allocate_aligned(size, page_bytes()))
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    pvalloc_impl(size)
}

#[inline(always)]
pub(crate) fn pvalloc_impl(size: usize) -> *mut c_void {
    let page = page_bytes();
    match size.checked_next_multiple_of(page) {
        Some(size) => or_enomem(allocate_aligned(size, page)),
        None => set_enomem(),
    }
}

fn page_bytes() -> usize {
    // SAFETY: getauxval has no preconditions. The kernel always states the page size.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}
