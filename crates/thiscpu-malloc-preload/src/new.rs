//! The throwing forms of operator new, by the names of the C++ ABI for x86-64 and AArch64.
//!
//! If memory is exhausted, the installed new-handler is called until there is memory or it throws.
//! Without a handler, `std::bad_alloc` is thrown. Exceptions pass through these functions, so their
//! ABI lets them unwind; they have nothing to clean up.

use core::ffi::c_void;
use core::ptr::NonNull;

use thiscpu_malloc::{allocate_aligned, define_malloc, export};

use crate::cxx_runtime::{new_handler, throw_bad_alloc};
use crate::interpose::resolve;
use crate::rust_runtime;

/// The alignment that `operator new` guarantees: `__STDCPP_DEFAULT_NEW_ALIGNMENT__`.
const DEFAULT_NEW_ALIGN: usize = 16;

pub(crate) type New = extern "C-unwind" fn(usize) -> *mut c_void;
pub(crate) type NewAligned = extern "C-unwind" fn(usize, usize) -> *mut c_void;

define_malloc!(
    /// Implements `operator new(size_t)`.
    #[unsafe(export_name = "_Znwm")]
    fn new() -> *mut c_void, in ".text.new", gated: new_gated
);

#[inline(never)]
extern "C-unwind" fn new_gated(size: usize, is_counted: bool) -> *mut c_void {
    export::alloc_gated(size, is_counted, |size, cell| new_cold(size, cell))
}

#[cold]
#[inline(never)]
extern "C-unwind" fn new_cold(size: usize, cell: usize) -> *mut c_void {
    rust_runtime::abort_on_panic();
    or_call_handler(export::alloc_cold(size, cell), size, DEFAULT_NEW_ALIGN)
}

/// Implements `operator new[](size_t)`.
#[unsafe(export_name = "_Znam")]
extern "C-unwind" fn new_array(size: usize) -> *mut c_void {
    resolve!("_Znwm" as New)(size)
}

/// Implements `operator new(size_t, std::align_val_t)`.
#[unsafe(export_name = "_ZnwmSt11align_val_t")]
extern "C-unwind" fn new_aligned(size: usize, align: usize) -> *mut c_void {
    or_call_handler(aligned(size, align), size, align)
}

/// Implements `operator new[](size_t, std::align_val_t)`.
#[unsafe(export_name = "_ZnamSt11align_val_t")]
extern "C-unwind" fn new_array_aligned(size: usize, align: usize) -> *mut c_void {
    resolve!("_ZnwmSt11align_val_t" as NewAligned)(size, align)
}

/// Allocates a block, if the alignment is valid and memory is left.
#[inline(always)]
pub(crate) fn aligned(size: usize, align: usize) -> Option<NonNull<u8>> {
    if align.is_power_of_two() { allocate_aligned(size, align) } else { None }
}

/// Returns the block, or calls the new-handler if there is none.
fn or_call_handler(block: Option<NonNull<u8>>, size: usize, align: usize) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => retry_with_handler(size, align),
    }
}

/// Calls the new-handler until a block can be allocated.
#[cold]
#[inline(never)]
extern "C-unwind" fn retry_with_handler(size: usize, align: usize) -> *mut c_void {
    // No handler can help with an invalid alignment.
    while align.is_power_of_two() {
        match new_handler() {
            Some(handler) => handler(),
            None => break,
        }
        if let Some(block) = allocate_aligned(size, align) {
            return block.as_ptr().cast();
        }
    }
    throw_bad_alloc()
}
