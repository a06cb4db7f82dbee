//! Counters that can be read at one instant.

use std::mem::offset_of;

use thiscpu::__internal::capi::DynCounters;

use crate::ffi::{catch, copy_out, create, deref, destroy, write};
use crate::status::Status;

/// Counters whose values can be read at one instant. Rust: `Counters`.
///
/// Each is a counter like `thiscpu_counter`, with an index from 0 on. A snapshot of all costs one
/// fence. They cannot be set; subtract an earlier snapshot instead.
///
/// - Threads: any number may call all functions at once, except `thiscpu_counters_destroy`.
/// - Lifetime: from `thiscpu_counters_create` to `thiscpu_counters_destroy`.
/// - Signal handlers: `_add`, `_read` and `_len` only.
/// - After `fork`: the child has counters of its own, which start with the parent's values.
/// - Memory order: what a thread did before `_add` happens before the return of each `_sum` or
///   `_snapshot` whose result includes it. `_read` orders nothing.
pub struct ThiscpuCounters(pub(crate) DynCounters);

// thiscpu_inline.h takes the address of a handle for the address of its gate, which `DynCounters`
// begins with, and finds the number of counters at this offset.
const _: () = assert!(offset_of!(ThiscpuCounters, 0) == 0 && DynCounters::LEN_AT == 56);

/// The largest number of counters of a `thiscpu_counters`.
pub const THISCPU_COUNTERS_MAX: usize = 4096;
const _: () = assert!(THISCPU_COUNTERS_MAX == DynCounters::LEN_MAX);

impl ThiscpuCounters {
    /// Returns the counters, if there is one of that index.
    fn with(&self, index: usize) -> Result<&DynCounters, Status> {
        if index < self.0.len() { Ok(&self.0) } else { Err(Status::OutOfRange) }
    }
}

/// Creates `count` counters of value 0 and stores their handle in `*counters`.
///
/// They take 40 bytes each, and after the first add 32 bytes each on each CPU.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
///   if `count` is 0 or greater than `THISCPU_COUNTERS_MAX`.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_create(
    count: usize,
    counters: *mut *mut ThiscpuCounters,
) -> Status {
    let new = || {
        if !(1..=THISCPU_COUNTERS_MAX).contains(&count) {
            return Err(Status::InvalidSize);
        }
        thiscpu::tier()?;
        DynCounters::try_new(count).map(ThiscpuCounters).ok_or(Status::NoMemory)
    };
    // SAFETY: the header requires that `counters` is null or valid for writes.
    unsafe { create(counters, new) }
}

/// Destroys counters. No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_destroy(counters: *mut ThiscpuCounters) -> Status {
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
pub unsafe extern "C" fn thiscpu_counters_len(
    counters: *mut ThiscpuCounters,
    count: *mut usize,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `count` null or valid for
    // writes.
    unsafe { write(counters, count, |counters| Ok(counters.0.len())) }
}

/// Adds `n`, which may be negative, to counter `index`.
///
/// Costs one restartable sequence. Inlined; see `thiscpu_inline.h`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_add(
    counters: *mut ThiscpuCounters,
    index: usize,
    n: i64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(counters) }?.with(index)?.add(index, n);
        Ok(())
    })
}

/// Stores an estimate of counter `index` in `*value`, as `thiscpu_counter_read` does.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_read(
    counters: *mut ThiscpuCounters,
    index: usize,
    value: *mut i64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `value` null or valid for
    // writes.
    unsafe { write(counters, value, |counters| Ok(counters.with(index)?.read(index))) }
}

/// Stores the exact value of counter `index`, at one instant of the call, in `*sum`.
///
/// Costs one fence. Adds are not delayed.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: while other threads are in `_sum` or `_snapshot` of these counters.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_sum(
    counters: *mut ThiscpuCounters,
    index: usize,
    sum: *mut i64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `sum` null or valid for
    // writes.
    unsafe { write(counters, sum, |counters| Ok(counters.with(index)?.sum(index))) }
}

/// Stores the exact values of all counters, at one instant of the call, in `values`.
///
/// `capacity` is the number of values that `values` has room for. Costs one fence. Adds are not
/// delayed.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `INVALID_SIZE` if `capacity` is less than the
///   number of counters.
/// - Blocks: while other threads are in `_sum` or `_snapshot` of these counters.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_snapshot(
    counters: *mut ThiscpuCounters,
    values: *mut i64,
    capacity: usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let counters = &unsafe { deref(counters) }?.0;
        if capacity < counters.len() {
            return Err(Status::InvalidSize);
        }
        // SAFETY: the header requires that `values` has room for `capacity` values.
        unsafe { copy_out(values, capacity, counters.snapshot()) }.map(drop)
    })
}
