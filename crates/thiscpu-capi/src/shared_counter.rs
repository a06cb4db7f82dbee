//! Counters in a segment.

use std::ffi::c_char;

use thiscpu::SharedCounter;

use crate::ffi::{catch, create, deref, destroy, name, write};
use crate::segment::ThiscpuSegment;
use crate::status::Status;

/// A counter of 64 bits that processes share, with exact sums. Rust: `SharedCounter`.
///
/// An add costs about one uncontended atomic addition. It never waits. A process that is killed at
/// any instruction has made each of its adds or not. Values wrap around on overflow.
///
/// - Threads: any number may call all functions at once, except `thiscpu_shared_counter_close`.
/// - Lifetime: from `thiscpu_shared_counter_open` to `thiscpu_shared_counter_close`. The counter
///   itself stays in the segment.
/// - Signal handlers: `_add` and `_sum`.
/// - After `fork`: the child shares the counter with its parent.
/// - Memory order: what a thread did before `_add` happens before the return of each `_sum` whose
///   result includes it, also if the threads are of two processes.
pub struct ThiscpuSharedCounter(SharedCounter);

/// Finds the counter of a name in a segment, or makes it; stores its handle in `*counter`.
///
/// A name is UTF-8 of 1 to 200 bytes, without control characters.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `SEGMENT_FULL`;
///   `WRONG_KIND` if the name is that of another kind of object; `SYSTEM` with `errno`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counter_open(
    segment: *mut ThiscpuSegment,
    name: *const c_char,
    counter: *mut *mut ThiscpuSharedCounter,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and `name` null or a string.
        let (segment, name) = unsafe { (deref(segment)?, self::name(name)?) };
        Ok(ThiscpuSharedCounter(segment.0.counter(name)?))
    };
    // SAFETY: the header requires that `counter` is null or valid for writes.
    unsafe { create(counter, new) }
}

/// Closes a handle, which no thread may use during or after this call. The counter stays.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counter_close(
    counter: *mut ThiscpuSharedCounter,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(counter) }
}

/// Adds `n`, which may be negative.
///
/// Costs one locked instruction on a cache line of this CPU; about twice that if `n` is 32,768 or
/// more, or less than -32,768.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counter_add(
    counter: *mut ThiscpuSharedCounter,
    n: i64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(counter) }?.0.add(n);
        Ok(())
    })
}

/// Stores the exact value, at one instant of the call, in `*sum`.
///
/// Includes the adds of all processes. Costs two exchanges for each lane. Adds go on meanwhile.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_counter_sum(
    counter: *mut ThiscpuSharedCounter,
    sum: *mut i64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `sum` null or valid for
    // writes.
    unsafe { write(counter, sum, |counter| Ok(counter.0.sum())) }
}
