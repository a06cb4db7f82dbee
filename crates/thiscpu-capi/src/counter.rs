//! Counters.

use std::mem::offset_of;

use thiscpu::__internal::capi::COUNTER_GATE_AT;
use thiscpu::Counter;

use crate::ffi::{OutParam, catch, create, deref, destroy, write};
use crate::status::Status;

/// A counter of 64 bits with per-CPU adds and exact sums. Rust: `Counter`.
///
/// An add takes about 1 ns on any number of CPUs. A sum is exact and does not delay adds. Values
/// wrap around on overflow.
///
/// - Threads: any number may call all functions at once, except `thiscpu_counter_destroy`.
/// - Lifetime: from `thiscpu_counter_create` to `thiscpu_counter_destroy`.
/// - Signal handlers: `_add`, `_read` and `_bounds` only.
/// - After `fork`: the child has a counter of its own, which starts with the parent's value.
/// - Memory order: what a thread did before `_add` or `_set` happens before the return of each
///   `_sum` or `_take` whose result includes it. `_read`, `_bounds` and `_compare` order nothing.
pub struct ThiscpuCounter(pub(crate) Counter);

// thiscpu_inline.h takes the address of a handle for the address of its gate.
const _: () = assert!(offset_of!(ThiscpuCounter, 0) + COUNTER_GATE_AT == 0);

/// Bounds of a counter's value, which was within them at one instant of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThiscpuBounds {
    /// The lower bound: `low <= value`.
    pub low: i64,
    /// The estimate that `thiscpu_counter_read` returns.
    pub estimate: i64,
    /// The upper bound: `value <= high`.
    pub high: i64,
}

/// Creates a counter of value 0 and stores its handle in `*counter`.
///
/// Its batch is 1,024 for each CPU in use; see `thiscpu_counter_create_with_batch`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_create(counter: *mut *mut ThiscpuCounter) -> Status {
    let new = || {
        thiscpu::tier()?;
        Ok(ThiscpuCounter(Counter::new()))
    };
    // SAFETY: the header requires that `counter` is null or valid for writes.
    unsafe { create(counter, new) }
}

/// Creates a counter of value 0 whose CPUs publish their count after adding about `batch`.
///
/// Stores its handle in `*counter`. A smaller batch makes `thiscpu_counter_read` more exact; with n
/// CPUs in use it is off by at most 2 * n * `batch`. A larger one suits large amounts, such as
/// bytes. A batch is rounded up to a power of two, and is at least 128 and at most 2^40. With 0 or
/// 1, each add is an atomic instruction on one word, and `thiscpu_counter_read` is exact.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_create_with_batch(
    batch: u64,
    counter: *mut *mut ThiscpuCounter,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        Ok(ThiscpuCounter(Counter::with_batch(batch)))
    };
    // SAFETY: the header requires that `counter` is null or valid for writes.
    unsafe { create(counter, new) }
}

/// Destroys a counter. No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_destroy(counter: *mut ThiscpuCounter) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(counter) }
}

/// Adds `n`, which may be negative.
///
/// Costs one restartable sequence. Inlined; see `thiscpu_inline.h`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_add(counter: *mut ThiscpuCounter, n: i64) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(counter) }?.0.add(n);
        Ok(())
    })
}

/// Stores an estimate of the value in `*value`: the middle of the bounds.
///
/// With n CPUs in use, the estimate is off by at most about 2,048 * n * n. The error grows with the
/// square, because each CPU's batch grows with the number of CPUs. Costs a few loads.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_read(
    counter: *mut ThiscpuCounter,
    value: *mut i64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `value` null or valid for
    // writes.
    unsafe { write(counter, value, |counter| Ok(counter.0.read())) }
}

/// Stores bounds in `*bounds`; the value was within them at one instant of the call.
///
/// The bounds allow for adds that are in progress. Costs a few loads.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_bounds(
    counter: *mut ThiscpuCounter,
    bounds: *mut ThiscpuBounds,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `bounds` null or valid
        // for writes.
        let (counter, out) = unsafe { (deref(counter)?, OutParam::new(bounds)?) };
        let thiscpu::Bounds { low, estimate, high } = counter.0.bounds();
        out.write(ThiscpuBounds { low, estimate, high });
        Ok(())
    })
}

/// Stores the exact value, at one instant of the call, in `*sum`.
///
/// Costs one fence. Adds are not delayed.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: while other threads are in `_sum`, `_set`, `_take` or `_compare` of this counter.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_sum(
    counter: *mut ThiscpuCounter,
    sum: *mut i64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `sum` null or valid for
    // writes.
    unsafe { write(counter, sum, |counter| Ok(counter.0.sum())) }
}

/// Sets the value to `value`, at one instant of the call.
///
/// Adds before that instant are discarded; later adds count from the new value. Costs one fence.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: while other threads are in `_sum`, `_set`, `_take` or `_compare` of this counter.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_set(counter: *mut ThiscpuCounter, value: i64) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(counter) }?.0.set(value);
        Ok(())
    })
}

/// Sets the value to 0 and stores the exact previous value in `*value`, at one instant.
///
/// No add is lost or counted twice. Costs one fence.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: while other threads are in `_sum`, `_set`, `_take` or `_compare` of this counter.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_take(
    counter: *mut ThiscpuCounter,
    value: *mut i64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `value` null or valid for
    // writes.
    unsafe { write(counter, value, |counter| Ok(counter.0.take())) }
}

/// Compares the exact value at one instant of the call with `rhs`.
///
/// Stores -1 in `*ordering` if the value is less than `rhs`, 0 if it is equal, and 1 if it is
/// greater. Costs a few loads if the value is far from `rhs`; otherwise one fence.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: if it takes a fence, while other threads are in `_sum`, `_set`, `_take` or `_compare`
///   of this counter.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_compare(
    counter: *mut ThiscpuCounter,
    rhs: i64,
    ordering: *mut i32,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `ordering` null or valid for
    // writes.
    // The discriminants of `Ordering` are -1, 0 and 1.
    unsafe { write(counter, ordering, |counter| Ok(counter.0.compare(rhs).ordering as i32)) }
}
