//! Counters.

use std::cmp::Ordering;
use std::mem::offset_of;

use thiscpu::Counter;
use thiscpu::inside::foreign::COUNTER_GATE_AT;

use crate::ffi::{call, end, make, place, there};
use crate::status::Status;

/// A counter: adds that cost about a nanosecond on any number of CPUs, and exact sums at any time without making the
/// writers wait. 64 bits, which wrap around.
///
/// All its functions may be called by any number of threads at once, `thiscpu_counter_destroy` by the last. Adding never waits, and may be
/// done in signal handlers and in children of `fork`; a child goes on with a counter of its own, from what the parent had. A counter orders nothing
/// but itself: who sees a sum need not see what was written before the adds in it.
pub struct ThiscpuCounter(Counter);

// Where thiscpu_inline.h has it.
const _: () = assert!(offset_of!(ThiscpuCounter, 0) + COUNTER_GATE_AT == 0);

/// What a counter's value was within, at one instant of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThiscpuBounds {
    /// The value was not below this.
    pub low: i64,
    /// The estimate that `thiscpu_counter_read` gives.
    pub estimate: i64,
    /// The value was not above this.
    pub high: i64,
}

/// Makes a counter that is 0, and puts its handle into `*counter`. The handle is valid until `thiscpu_counter_destroy`.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_create(counter: *mut *mut ThiscpuCounter) -> Status {
    let new = || {
        thiscpu::tier()?;
        Ok(ThiscpuCounter(Counter::new()))
    };
    // SAFETY: a caller's pointer is null or valid, as the header asks.
    unsafe { make(counter, new) }
}

/// Ends a counter. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_destroy(counter: *mut ThiscpuCounter) -> Status {
    // SAFETY: as above; the handle is the caller's to end.
    unsafe { end(counter) }
}

/// Adds `n`, which may be negative. One restartable sequence; never waits.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_add(counter: *mut ThiscpuCounter, n: i64) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks.
        unsafe { there(counter) }?.0.add(n);
        Ok(())
    })
}

/// An estimate of the value, into `*value`: the middle of the bounds, which are about 2,048 times the square of the CPUs in use apart. A few loads;
/// never waits.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_read(
    counter: *mut ThiscpuCounter,
    value: *mut i64,
) -> Status {
    call(|| {
        // SAFETY: as above, and a caller's pointer is null or valid.
        let (counter, value) = unsafe { (there(counter)?, place(value)?) };
        value.put(counter.0.read());
        Ok(())
    })
}

/// Limits that the value was within at one instant of the call, updates in flight included, into `*bounds`. A few
/// loads; never waits.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_bounds(
    counter: *mut ThiscpuCounter,
    bounds: *mut ThiscpuBounds,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_counter_read`.
        let (counter, place) = unsafe { (there(counter)?, place(bounds)?) };
        let thiscpu::Bounds { low, estimate, high } = counter.0.bounds();
        place.put(ThiscpuBounds { low, estimate, high });
        Ok(())
    })
}

/// The exact value at one instant of the call, into `*sum`. One fence (0.2 us in an idle process, 10 to 30 us where other CPUs
/// run it); those who add are not held up. Not from signal handlers.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_sum(
    counter: *mut ThiscpuCounter,
    sum: *mut i64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_counter_read`.
        let (counter, sum) = unsafe { (there(counter)?, place(sum)?) };
        sum.put(counter.0.sum());
        Ok(())
    })
}

/// Makes the value `value`, at one instant: what was added before is forgotten, what is added after counts on. Costs a fence, and
/// waits for other callers of this, `_sum`, `_take` and `_compare`. Not from signal handlers.
///
/// Errors: as for `thiscpu_counter_sum`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_set(counter: *mut ThiscpuCounter, value: i64) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_counter_add`.
        unsafe { there(counter) }?.0.set(value);
        Ok(())
    })
}

/// Makes the value 0, and puts what it was into `*value`, at one instant: nothing that is added is lost or counted twice. Otherwise as
/// `thiscpu_counter_set`.
///
/// Errors: as for `thiscpu_counter_sum`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_take(
    counter: *mut ThiscpuCounter,
    value: *mut i64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_counter_read`.
        let (counter, value) = unsafe { (there(counter)?, place(value)?) };
        value.put(counter.0.take());
        Ok(())
    })
}

/// Compares the value with `rhs`, as it was at one instant of the call: -1 into `*ordering` if it is below, 0 if it is the same, 1 if it is
/// above. A few loads if it is far; near, a fence. Otherwise as `thiscpu_counter_set`.
///
/// Errors: as for `thiscpu_counter_sum`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_compare(
    counter: *mut ThiscpuCounter,
    rhs: i64,
    ordering: *mut i32,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_counter_read`.
        let (counter, place) = unsafe { (there(counter)?, place(ordering)?) };
        place.put(match counter.0.compare(rhs).ordering {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        });
        Ok(())
    })
}
