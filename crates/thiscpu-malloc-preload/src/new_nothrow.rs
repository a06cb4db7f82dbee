//! The forms of operator new that return null instead of throwing.
//!
//! The program may have replaced the throwing forms, and a new-handler may throw; these forms have
//! to catch that. Rust cannot catch C++ exceptions. The C++ runtime's functions of the same names
//! can, and they call `operator new` inside. So those are called if anything could be
//! thrown.

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use thiscpu_malloc::allocate;

use crate::cxx_runtime::{new_handler, runtime_function};
use crate::interpose::{IsOwn, resolve};
use crate::new::{New, NewAligned, aligned};

/// `std::nothrow_t const&`, which carries no data.
type Tag = *const c_void;

/// Implements `operator new(size_t, std::nothrow_t const&)`.
#[unsafe(export_name = "_ZnwmRKSt9nothrow_t")]
extern "C" fn new(size: usize, tag: Tag) -> *mut c_void {
    static NEW: IsOwn = IsOwn::new();
    if !NEW.check(resolve!("_Znwm" as New) as *const c_void) {
        return new_by_runtime(size, tag);
    }
    match allocate(size) {
        Some(block) => block.as_ptr().cast(),
        None if new_handler().is_none() => ptr::null_mut(),
        None => new_by_runtime(size, tag),
    }
}

/// Implements `operator new[](size_t, std::nothrow_t const&)`.
#[unsafe(export_name = "_ZnamRKSt9nothrow_t")]
extern "C" fn new_array(size: usize, tag: Tag) -> *mut c_void {
    resolve!("_ZnwmRKSt9nothrow_t" as NewNothrow)(size, tag)
}

/// Implements `operator new(size_t, std::align_val_t, std::nothrow_t const&)`.
#[unsafe(export_name = "_ZnwmSt11align_val_tRKSt9nothrow_t")]
extern "C" fn new_aligned(size: usize, align: usize, tag: Tag) -> *mut c_void {
    static NEW: IsOwn = IsOwn::new();
    if !NEW.check(resolve!("_ZnwmSt11align_val_t" as NewAligned) as *const c_void) {
        return new_aligned_by_runtime(size, align, tag);
    }
    match aligned(size, align) {
        Some(block) => block.as_ptr().cast(),
        None if new_handler().is_none() => ptr::null_mut(),
        None => new_aligned_by_runtime(size, align, tag),
    }
}

/// Implements `operator new[](size_t, std::align_val_t, std::nothrow_t const&)`.
#[unsafe(export_name = "_ZnamSt11align_val_tRKSt9nothrow_t")]
extern "C" fn new_array_aligned(size: usize, align: usize, tag: Tag) -> *mut c_void {
    resolve!("_ZnwmSt11align_val_tRKSt9nothrow_t" as NewNothrowAligned)(size, align, tag)
}

type NewNothrow = extern "C" fn(usize, Tag) -> *mut c_void;
type NewNothrowAligned = extern "C" fn(usize, usize, Tag) -> *mut c_void;

#[cold]
#[inline(never)]
extern "C" fn new_by_runtime(size: usize, tag: Tag) -> *mut c_void {
    // SAFETY: the C++ runtime's function of this name has this type.
    let new = unsafe {
        core::mem::transmute::<NonNull<c_void>, NewNothrow>(runtime_function(
            c"_ZnwmRKSt9nothrow_t",
        ))
    };
    new(size, tag)
}

#[cold]
#[inline(never)]
extern "C" fn new_aligned_by_runtime(size: usize, align: usize, tag: Tag) -> *mut c_void {
    // SAFETY: the C++ runtime's function of this name has this type.
    let new = unsafe {
        let found = runtime_function(c"_ZnwmSt11align_val_tRKSt9nothrow_t");
        core::mem::transmute::<NonNull<c_void>, NewNothrowAligned>(found)
    };
    new(size, align, tag)
}
