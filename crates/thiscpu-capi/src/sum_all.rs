//! Sums of many counters for one fence.

use thiscpu::__internal::capi::try_sum_all;
use thiscpu::Summable;

use crate::counter::ThiscpuCounter;
use crate::counters::ThiscpuCounters;
use crate::ffi::{catch, copy_out, deref};
use crate::status::Status;

/// What `thiscpu_sum_all` sums: a counter, or counters. Rust: `Summable`.
///
/// One of the two is NULL. If neither is, both are summed, in this order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuSummable {
    /// A counter, which has one value.
    pub counter: *mut ThiscpuCounter,
    /// Counters, of which each has a value.
    pub counters: *mut ThiscpuCounters,
}

/// Stores the exact values of many counters, in order, in `values`. Costs one fence.
///
/// `summables` are `count` handles. `capacity` is the number of values that `values` has room for.
/// Each value is true at an instant of the call. The values of one `thiscpu_counters` share an
/// instant; others do not. So use this for many unrelated counters, such as in a scrape.
///
/// - NULL: allowed for both arrays if `count` is 0, which does nothing.
/// - Returns: `OK`, `NO_MEMORY`, `FENCE_DENIED`; `NULL_POINTER` if a pointer to an array is NULL,
///   or both pointers of a summable; `INVALID_SIZE` if `capacity` is less than the number of
///   values.
/// - Blocks: while other threads are in this function, or in exact calls of these counters.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_sum_all(
    summables: *const ThiscpuSummable,
    count: usize,
    values: *mut i64,
    capacity: usize,
) -> Status {
    catch(|| {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the header requires that `summables` is null or points to `count` summables.
        let summables = unsafe {
            deref(summables)?;
            std::slice::from_raw_parts(summables, count)
        };
        let (mut all, mut length): (Vec<&dyn Summable>, usize) = (Vec::new(), 0);
        all.try_reserve_exact(2 * count).map_err(|_| Status::NoMemory)?;
        for summable in summables {
            if summable.counter.is_null() && summable.counters.is_null() {
                return Err(Status::NullPointer);
            }
            if !summable.counter.is_null() {
                // SAFETY: the header requires that the handle is live.
                all.push(&unsafe { deref(summable.counter) }?.0);
                length += 1;
            }
            if !summable.counters.is_null() {
                // SAFETY: the header requires that the handle is live.
                let counters = &unsafe { deref(summable.counters) }?.0;
                all.push(counters);
                length += counters.len();
            }
        }
        if capacity < length {
            return Err(Status::InvalidSize);
        }
        let sums = try_sum_all(&all).ok_or(Status::NoMemory)?;
        // SAFETY: the header requires that `values` has room for `capacity` values.
        unsafe { copy_out(values, capacity, sums.into_iter()) }.map(drop)
    })
}
