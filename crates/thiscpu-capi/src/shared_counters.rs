//! Counters in a segment that are read at one instant.

use std::ffi::c_char;
use std::slice;

use thiscpu::__internal::capi::DynSharedCounters;

use crate::counters::THISCPU_COUNTERS_MAX;
use crate::ffi::{OutParam, catch, create, deref, destroy, name, write};
use crate::segment::ThiscpuSegment;
use crate::status::Status;

/// Counters that processes share, and that are read at one instant. Rust: `SharedCounters`.
///
/// Each is a counter like `thiscpu_shared_counter`, with an index from 0 on.
///
/// - Threads: any number may call all functions at once, except `thiscpu_shared_counters_close`.
/// - Lifetime: from `thiscpu_shared_counters_open` to `thiscpu_shared_counters_close`. The counters
///   themselves stay in the segment.
/// - Signal handlers: `_add`, `_len` and `_snapshot`.
/// - After `fork`: the child shares the counters with its parent.
/// - Memory order: what a thread did before `_add` happens before the return of each `_snapshot`
///   whose result includes it, also if the threads are of two processes.
pub struct ThiscpuSharedCounters(DynSharedCounters);

const _: () = assert!(THISCPU_COUNTERS_MAX == DynSharedCounters::LEN_MAX);

/// Finds the counters of a name in a segment, or makes them, and stores their handle.
///
/// A name is UTF-8 of 1 to 200 bytes, without control characters.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `SEGMENT_FULL`;
///   `INVALID_SIZE` if `count` is 0 or greater than `THISCPU_COUNTERS_MAX`; `WRONG_KIND` if the
///   name is that of another kind of object or number of counters; `SYSTEM` with `errno`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counters_open(
    segment: *mut ThiscpuSegment,
    name: *const c_char,
    count: usize,
    counters: *mut *mut ThiscpuSharedCounters,
) -> Status {
    let new = || {
        if !(1..=THISCPU_COUNTERS_MAX).contains(&count) {
            return Err(Status::InvalidSize);
        }
        // SAFETY: the header requires that the handle is null or live, and `name` null or a string.
        let (segment, name) = unsafe { (deref(segment)?, self::name(name)?) };
        Ok(ThiscpuSharedCounters(DynSharedCounters::open(&segment.0, name, count)?))
    };
    // SAFETY: the header requires that `counters` is null or valid for writes.
    unsafe { create(counters, new) }
}

/// Closes a handle, which no thread may use during or after this call. The counters stay.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counters_close(
    counters: *mut ThiscpuSharedCounters,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(counters) }
}

/// Stores the number of counters in `*count`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counters_len(
    counters: *mut ThiscpuSharedCounters,
    count: *mut usize,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `count` null or valid for
    // writes.
    unsafe { write(counters, count, |counters| Ok(counters.0.len())) }
}

/// Adds `n`, which may be negative, to counter `index`, as `thiscpu_shared_counter_add` does.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counters_add(
    counters: *mut ThiscpuSharedCounters,
    index: usize,
    n: i64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let counters = &unsafe { deref(counters) }?.0;
        if index >= counters.len() {
            return Err(Status::OutOfRange);
        }
        counters.add(index, n);
        Ok(())
    })
}

/// Stores the exact values of all counters, at one instant of the call, in `values`.
///
/// `capacity` is the number of values that `values` has room for. Costs two exchanges for each
/// counter and lane. Adds go on meanwhile.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `INVALID_SIZE` if `capacity` is less than the number of
///   counters.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counters_snapshot(
    counters: *mut ThiscpuSharedCounters,
    values: *mut i64,
    capacity: usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let counters = &unsafe { deref(counters) }?.0;
        if capacity < counters.len() {
            return Err(Status::InvalidSize);
        }
        // SAFETY: the header requires that `values` is null or valid for writes.
        unsafe { OutParam::new(values) }?;
        // SAFETY: `values` is aligned and not null, as checked above. The header requires that it
        // has room for `capacity` values, and that nobody else accesses them meanwhile. They may be
        // uninitialized before this.
        let values = unsafe {
            values.write_bytes(0, counters.len());
            slice::from_raw_parts_mut(values, counters.len())
        };
        counters.snapshot_into(values);
        Ok(())
    })
}
