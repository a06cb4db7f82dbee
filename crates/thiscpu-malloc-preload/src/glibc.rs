//! The malloc family by glibc's internal names, which some programs call.
//!
//! A program whose own `malloc` wraps `__libc_malloc` may free its blocks with `free`. So functions
//! of both names must be this library's. And none of these may call the function without the
//! prefix, which may be that program's wrapper.

use core::ffi::c_void;

use thiscpu_malloc::{define_free, define_malloc};

use crate::aligned::{memalign_impl, pvalloc_impl, valloc_impl};
use crate::c::{calloc_impl, malloc_gated, realloc_impl};

define_malloc!(
    #[unsafe(no_mangle)]
    fn __libc_malloc() -> *mut c_void, in ".text.libc_malloc", gated: malloc_gated
);

#[unsafe(no_mangle)]
extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    calloc_impl(count, size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller guarantees that the pointer is null or an allocated block, and that the
    // old pointer is not used if this succeeds.
    unsafe { realloc_impl(pointer, size) }
}

#[unsafe(no_mangle)]
extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    memalign_impl(align, size)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    valloc_impl(size)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    pvalloc_impl(size)
}

define_free!(
    #[unsafe(no_mangle)]
    fn __libc_free(*mut c_void), in ".text.libc_free"
);

define_free!(
    /// Frees a block, by a name that programs from before 2017 may use.
    #[unsafe(no_mangle)]
    fn cfree(*mut c_void), in ".text.cfree"
);
