//! Objects of a cache that are allocated in advance.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null_mut;

use thiscpu::{RawCache, RawPrefilled};

use crate::cache::ThiscpuCache;
use crate::ffi::{catch, create, deref, destroy, write};
use crate::status::Status;

/// Objects of a cache, allocated in advance. Rust: `RawPrefilled`, `ConstructedPrefilled`.
///
/// - Threads: one thread at a time may use it.
/// - Lifetime: from `thiscpu_cache_prefill`, or `thiscpu_constructed_cache_prefill`, to
///   `thiscpu_prefilled_destroy`. The cache must outlive it.
/// - Signal handlers: none of its functions.
/// - After `fork`: the child has objects of its own.
pub struct ThiscpuPrefilled(RefCell<RawPrefilled<'static>>);

impl ThiscpuPrefilled {
    pub(crate) fn new(objects: RawPrefilled<'static>) -> ThiscpuPrefilled {
        ThiscpuPrefilled(RefCell::new(objects))
    }
}

/// Allocates `n` objects in advance, for code in which an allocation must not fail.
///
/// Stores the handle of the objects in `*prefilled`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `NO_MEMORY`, and then none of the objects is kept.
/// - Blocks: as `thiscpu_cache_alloc` does.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_prefill(
    cache: *mut ThiscpuCache,
    n: usize,
    prefilled: *mut *mut ThiscpuPrefilled,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and that the cache outlives
        // the objects, whose handle alone gets this reference.
        let cache: &'static RawCache = unsafe { deref(cache) }?.raw();
        Ok(ThiscpuPrefilled::new(cache.prefill(n)?))
    };
    // SAFETY: the header requires that `prefilled` is null or valid for writes.
    unsafe { create(prefilled, new) }
}

/// Takes one of the objects, which is as one from the cache's `_alloc` function.
///
/// Free it by the cache's `_free` function. Costs a few instructions, and needs no memory.
///
/// - NULL: not allowed.
/// - Returns: the object, not a status; NULL if none is left, or if `prefilled` is NULL or
///   misaligned.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_prefilled_alloc(prefilled: *mut ThiscpuPrefilled) -> *mut c_void {
    let mut object = None;
    // A failed call leaves no object.
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        object = unsafe { deref(prefilled) }?.0.borrow_mut().alloc();
        Ok(())
    });
    object.map_or(null_mut(), |object| object.cast().as_ptr())
}

/// Stores in `*len` how many objects are left.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_prefilled_len(
    prefilled: *mut ThiscpuPrefilled,
    len: *mut usize,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `len` null or valid for
    // writes.
    unsafe { write(prefilled, len, |prefilled| Ok(prefilled.0.borrow().len())) }
}

/// Frees the objects that are left, and destroys their handle.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: as the cache's `_free` function does.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_prefilled_destroy(prefilled: *mut ThiscpuPrefilled) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(prefilled) }
}
