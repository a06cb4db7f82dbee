//! The family by the names that glibc has for its own, and that some programs call.
//!
//! A program that wraps `malloc` around `__libc_malloc` may well free with `free`: by whichever name a block is had, it has to be one of
//! ours.

use core::ffi::c_void;

use crate::aligned::{memalign, pvalloc, valloc};
use crate::basic::{calloc, free, malloc, realloc};

#[unsafe(no_mangle)]
extern "C-unwind" fn __libc_malloc(size: usize) -> *mut c_void {
    malloc(size)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    calloc(count, size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { realloc(pointer, size) }
}

#[unsafe(no_mangle)]
extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    memalign(align, size)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    valloc(size)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    pvalloc(size)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __libc_free(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(pointer) };
}

/// free, as programs from before 2017 may call it.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn cfree(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(pointer) };
}
