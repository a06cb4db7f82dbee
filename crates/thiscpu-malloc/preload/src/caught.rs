//! operator new that returns null in place of throwing.
//!
//! A new-handler may throw, and that is to be caught. Rust cannot catch what C++ throws; the runtime's own function
//! of that name can, and asks `operator new` inside.

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use thiscpu_malloc::allocate;

use crate::runtime::{new_handler, of_the_runtime};
use crate::throwing::aligned;

/// `std::nothrow_t const&`, which holds nothing.
type Tag = *const c_void;

/// `operator new(size_t, std::nothrow_t const&)`
#[unsafe(export_name = "_ZnwmRKSt9nothrow_t")]
extern "C" fn new(size: usize, tag: Tag) -> *mut c_void {
    match allocate(size) {
        Some(block) => block.as_ptr().cast(),
        None => with_handler(size, tag),
    }
}

/// `operator new[](size_t, std::nothrow_t const&)`
#[unsafe(export_name = "_ZnamRKSt9nothrow_t")]
extern "C" fn new_array(size: usize, tag: Tag) -> *mut c_void {
    match allocate(size) {
        Some(block) => block.as_ptr().cast(),
        None => with_handler(size, tag),
    }
}

/// `operator new(size_t, std::align_val_t, std::nothrow_t const&)`
#[unsafe(export_name = "_ZnwmSt11align_val_tRKSt9nothrow_t")]
extern "C" fn new_aligned(size: usize, align: usize, tag: Tag) -> *mut c_void {
    match aligned(size, align) {
        Some(block) => block.as_ptr().cast(),
        None => with_handler_aligned(size, align, tag),
    }
}

/// `operator new[](size_t, std::align_val_t, std::nothrow_t const&)`
#[unsafe(export_name = "_ZnamSt11align_val_tRKSt9nothrow_t")]
extern "C" fn new_array_aligned(size: usize, align: usize, tag: Tag) -> *mut c_void {
    match aligned(size, align) {
        Some(block) => block.as_ptr().cast(),
        None => with_handler_aligned(size, align, tag),
    }
}

#[cold]
#[inline(never)]
extern "C" fn with_handler(size: usize, tag: Tag) -> *mut c_void {
    if new_handler().is_none() {
        return ptr::null_mut();
    }
    of_the_runtime(c"_ZnwmRKSt9nothrow_t").map_or(ptr::null_mut(), |found| {
        // SAFETY: the runtime's function of this name has this type.
        let new = unsafe {
            core::mem::transmute::<NonNull<c_void>, extern "C" fn(usize, Tag) -> *mut c_void>(found)
        };
        new(size, tag)
    })
}

#[cold]
#[inline(never)]
extern "C" fn with_handler_aligned(size: usize, align: usize, tag: Tag) -> *mut c_void {
    if new_handler().is_none() {
        return ptr::null_mut();
    }
    let name = c"_ZnwmSt11align_val_tRKSt9nothrow_t";
    of_the_runtime(name).map_or(ptr::null_mut(), |found| {
        // SAFETY: as above.
        let new = unsafe {
            core::mem::transmute::<
                NonNull<c_void>,
                extern "C" fn(usize, usize, Tag) -> *mut c_void,
            >(found)
        };
        new(size, align, tag)
    })
}
