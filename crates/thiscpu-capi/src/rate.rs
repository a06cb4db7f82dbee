//! Rates and windows.

use std::time::Duration;

use thiscpu::{Pace, Rate, RateConfigError, RateError, RateWindow};

use crate::budget::time_until;
use crate::ffi::{OutParam, catch, create, deref, destroy, write};
use crate::last_error;
use crate::status::Status;

/// A limit on units over time: so many in a period, with a burst. Rust: `Rate`.
///
/// A rate starts with `burst` units. Its pace adds units, up to the burst, and calls take them. In
/// every span of time `t`, calls take at most `burst + pace * t` units. Units are refused only if
/// at one instant of the call a bucket of `burst - share` units had fewer, or if other threads wait
/// for units. A call takes about 1 ns while plenty of units are available.
///
/// The share is the most units that lanes hold for their CPUs. The clock is `CLOCK_MONOTONIC`, so
/// no units come while the system is suspended.
///
/// - Threads: any number may call all functions at once, except `thiscpu_rate_destroy`.
/// - Lifetime: from `thiscpu_rate_create` to `thiscpu_rate_destroy`.
/// - Signal handlers: no function.
/// - After `fork`: the child has a rate of its own, with the parent's units but no waiting thread.
///
/// `THISCPU_STATUS_FENCE_DENIED`: available units are lent to CPUs, and only a fence can recall
/// them. Once a sandbox denies fences, each call that needs those units returns this status.
pub struct ThiscpuRate {
    rate: Rate,
}

/// A limit on the units in any window of time: never more than so many. Rust: `RateWindow`.
///
/// In every window of the given length, calls take at most `limit` units. Units
/// are refused only if calls took too many in a window that ends within the call and is longer by a
/// 64th. A call takes about 60 ns. The clock is `CLOCK_MONOTONIC`.
///
/// - Threads: any number may call all functions at once, except `thiscpu_rate_window_destroy`.
/// - Lifetime: from `thiscpu_rate_window_create` to `thiscpu_rate_window_destroy`.
/// - Signal handlers: no function.
/// - After `fork`: the child has a window of its own, with the parent's units.
pub struct ThiscpuRateWindow {
    window: RateWindow,
}

/// The largest burst of a rate, and the largest limit of a window: 2^40.
pub const THISCPU_RATE_BURST_MAX: u64 = 0x100_0000_0000;

/// The largest number of units in a period of a rate: 2^40.
pub const THISCPU_RATE_UNITS_MAX: u64 = 0x100_0000_0000;

const _: () = assert!(
    THISCPU_RATE_BURST_MAX == Rate::BURST_MAX
        && THISCPU_RATE_BURST_MAX == RateWindow::LIMIT_MAX
        && THISCPU_RATE_UNITS_MAX == Pace::UNITS_MAX
);

impl From<RateError> for Status {
    fn from(error: RateError) -> Self {
        match error {
            RateError::Exceeded { available, retry_after } => {
                last_error::note_rate(available, retry_after);
                Status::Exhausted
            }
            RateError::Closed => Status::Closed,
            error => {
                last_error::note(format_args!("{error}"));
                Status::OutOfRange
            }
        }
    }
}

impl From<RateConfigError> for Status {
    fn from(error: RateConfigError) -> Self {
        last_error::note(format_args!("{error}"));
        Status::OutOfRange
    }
}

fn pace(units: u64, period_ns: u64) -> Result<Pace, Status> {
    Ok(Pace::try_per(units, Duration::from_nanos(period_ns))?)
}

/// Calls `body` with the rate of a handle.
///
/// # Safety
///
/// The handle is null, misaligned or live.
unsafe fn with_rate(
    rate: *mut ThiscpuRate,
    body: impl FnOnce(&Rate) -> Result<(), Status>,
) -> Status {
    // SAFETY: the caller guarantees that the handle is null, misaligned or live.
    catch(|| body(&unsafe { deref(rate) }?.rate))
}

/// Acquires units, and writes the time after which to try again if they are refused.
///
/// # Safety
///
/// `retry_after_ns` is null, misaligned or valid for writes.
unsafe fn try_acquire(
    retry_after_ns: *mut u64,
    acquire: impl FnOnce() -> Result<(), RateError>,
) -> Result<(), Status> {
    // SAFETY: the caller guarantees it.
    let retry = unsafe { OutParam::optional(retry_after_ns) }?;
    acquire().map_err(|error| {
        if let (Some(retry), Some(after)) = (retry, error.retry_after()) {
            retry.write(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        }
        error.into()
    })
}

/// Creates a rate of `units` in each `period_ns` nanoseconds.
///
/// Stores its handle in `*rate`. It starts with `burst` units, the most that it ever has. The
/// lanes' share is an eighth of the burst.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
///   `OUT_OF_RANGE` if a number is 0, `units` is greater than `THISCPU_RATE_UNITS_MAX`, `burst`
///   is greater than `THISCPU_RATE_BURST_MAX`, or the period is 2^63 ns or longer.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_create(
    units: u64,
    period_ns: u64,
    burst: u64,
    rate: *mut *mut ThiscpuRate,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        Ok(ThiscpuRate { rate: Rate::try_new(pace(units, period_ns)?, burst)? })
    };
    // SAFETY: the header requires that `rate` is null or valid for writes.
    unsafe { create(rate, new) }
}

/// Destroys a rate.
///
/// No thread may use the handle, or wait for units, during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_destroy(rate: *mut ThiscpuRate) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it.
    unsafe { destroy(rate) }
}

/// Acquires `n` units, or none. Never waits for units.
///
/// If the units are refused, stores in `*retry_after_ns` after how many nanoseconds they will be
/// there, unless other calls take them. Costs one restartable sequence while plenty of units are
/// available; near the limit a clock read and an atomic instruction, or one fence.
///
/// - NULL: allowed for `retry_after_ns`; then nothing is stored.
/// - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`; `OUT_OF_RANGE` if `n`
///   is 0 or greater than the burst, and then `*retry_after_ns` is unchanged.
/// - Blocks: near the limit, for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_try_acquire(
    rate: *mut ThiscpuRate,
    n: u64,
    retry_after_ns: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `retry_after_ns` null or
    // valid for writes.
    unsafe { with_rate(rate, |rate| try_acquire(retry_after_ns, || rate.try_acquire(n))) }
}

/// Acquires as many units as are available, at most `n`.
///
/// Stores their number in `*acquired`. If no unit is available, `n` is 0, or the rate is closed,
/// this is 0 and the call returns `OK`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: near the limit, for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_try_acquire_up_to(
    rate: *mut ThiscpuRate,
    n: u64,
    acquired: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `acquired` null or valid for
    // writes.
    unsafe { write(rate, acquired, |rate| Ok(rate.rate.try_acquire_up_to(n))) }
}

/// Acquires `n` units; blocks until they are available, or the rate is closed.
///
/// First come, first served. The thread sleeps until its units will be there.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `CLOSED`, `FENCE_DENIED`; `OUT_OF_RANGE` if `n` is 0, or
///   greater than the burst, now or while the call waits.
/// - Blocks: until `n` units are available, or the rate is closed.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_acquire(rate: *mut ThiscpuRate, n: u64) -> Status {
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_rate(rate, |rate| Ok(rate.acquire(n)?)) }
}

/// Acquires `n` units; blocks until they are available, for at most `timeout_ns` nanoseconds.
///
/// Otherwise like `thiscpu_rate_acquire`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the time is over; `CLOSED`, `FENCE_DENIED`,
///   `OUT_OF_RANGE`.
/// - Blocks: until `n` units are available, the rate is closed, or the time is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_acquire_timeout(
    rate: *mut ThiscpuRate,
    n: u64,
    timeout_ns: u64,
) -> Status {
    let body = |rate: &Rate| Ok(rate.acquire_timeout(n, Duration::from_nanos(timeout_ns))?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_rate(rate, body) }
}

/// Acquires `n` units; blocks until they are available, or until a deadline.
///
/// `deadline_ns` is in nanoseconds of `CLOCK_MONOTONIC`. Otherwise like `thiscpu_rate_acquire`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the deadline is over; `CLOSED`, `FENCE_DENIED`,
///   `OUT_OF_RANGE`.
/// - Blocks: until `n` units are available, the rate is closed, or the deadline is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_acquire_deadline(
    rate: *mut ThiscpuRate,
    n: u64,
    deadline_ns: u64,
) -> Status {
    let body = |rate: &Rate| Ok(rate.acquire_timeout(n, time_until(deadline_ns))?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_rate(rate, body) }
}

/// Stores in `*available` how many units are available at one instant of the call.
///
/// While any thread waits for units, or if the rate is closed, it stores 0. Costs one fence if
/// units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_available(
    rate: *mut ThiscpuRate,
    available: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `available` null or valid
    // for writes.
    unsafe { write(rate, available, |rate| Ok(rate.rate.available())) }
}

/// Stores the burst in `*burst`. Costs a few loads.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_burst(rate: *mut ThiscpuRate, burst: *mut u64) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `burst` null or valid for
    // writes.
    unsafe { write(rate, burst, |rate| Ok(rate.rate.burst())) }
}

/// Stores in `*share` the most units that lanes hold. Costs a few loads.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_share(rate: *mut ThiscpuRate, share: *mut u64) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `share` null or valid for
    // writes.
    unsafe { write(rate, share, |rate| Ok(rate.rate.share())) }
}

/// Changes the pace, at one instant of the call. The rate keeps the units that it has.
///
/// Waiting threads get new times. Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`, `OUT_OF_RANGE` as `thiscpu_rate_create`.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_set_pace(
    rate: *mut ThiscpuRate,
    units: u64,
    period_ns: u64,
) -> Status {
    let body = |rate: &Rate| {
        rate.set_pace(pace(units, period_ns)?);
        Ok(())
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_rate(rate, body) }
}

/// Changes the burst, at one instant of the call. Units above the new burst are lost.
///
/// A higher burst brings no units at once. The share becomes an eighth of the burst, or what
/// `thiscpu_rate_set_share` has set if that is less. Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `burst` is 0 or too large.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_set_burst(rate: *mut ThiscpuRate, burst: u64) -> Status {
    let body = |rate: &Rate| Ok(rate.set_burst(burst)?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_rate(rate, body) }
}

/// Changes the most units that lanes hold, at one instant of the call.
///
/// With 0 refusals are exact, and each call costs a clock read and a shared line. Costs one fence
/// if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `share` is above an eighth of
///   the burst.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_set_share(rate: *mut ThiscpuRate, share: u64) -> Status {
    let body = |rate: &Rate| Ok(rate.set_share(share)?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_rate(rate, body) }
}

/// Closes the rate: ends all waits, and refuses all later acquires.
///
/// A rate cannot be opened again. Closing it twice does nothing.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_close(rate: *mut ThiscpuRate) -> Status {
    let body = |rate: &Rate| {
        rate.close();
        Ok(())
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_rate(rate, body) }
}

/// Stores in `*closed` whether the rate is closed. Costs one load.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_is_closed(
    rate: *mut ThiscpuRate,
    closed: *mut bool,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `closed` null or valid for
    // writes.
    unsafe { write(rate, closed, |rate| Ok(rate.rate.is_closed())) }
}

/// Stores in `*waiters` how many threads wait for units. Costs one load.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_waiters(
    rate: *mut ThiscpuRate,
    waiters: *mut usize,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `waiters` null or valid for
    // writes.
    unsafe { write(rate, waiters, |rate| Ok(rate.rate.waiters())) }
}

/// Creates a window of `period_ns` nanoseconds with at most `limit` units.
///
/// Stores its handle in `*window`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
///   `OUT_OF_RANGE` if `limit` is 0 or greater than `THISCPU_RATE_BURST_MAX`, or the period is
///   shorter than 64 ns, or 2^63 ns or longer.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_window_create(
    limit: u64,
    period_ns: u64,
    window: *mut *mut ThiscpuRateWindow,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        let window = RateWindow::try_new(limit, Duration::from_nanos(period_ns))?;
        Ok(ThiscpuRateWindow { window })
    };
    // SAFETY: the header requires that `window` is null or valid for writes.
    unsafe { create(window, new) }
}

/// Destroys a window. No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_window_destroy(window: *mut ThiscpuRateWindow) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it.
    unsafe { destroy(window) }
}

/// Acquires `n` units, or none. Never waits for units.
///
/// If the units are refused, stores in `*retry_after_ns` after how many nanoseconds they will be
/// there, unless other calls take them.
///
/// - NULL: allowed for `retry_after_ns`; then nothing is stored.
/// - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`; `OUT_OF_RANGE` if `n` is 0 or greater than the
///   limit, and then `*retry_after_ns` is unchanged.
/// - Blocks: for a moment, while another thread takes units back.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_window_try_acquire(
    window: *mut ThiscpuRateWindow,
    n: u64,
    retry_after_ns: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `retry_after_ns` null or
    // valid for writes.
    catch(|| unsafe {
        let window = &deref(window)?.window;
        try_acquire(retry_after_ns, || window.try_acquire(n))
    })
}

/// Acquires as many units as are available, at most `n`.
///
/// Stores their number in `*acquired`. If no unit is available, or `n` is 0, this is 0 and the call
/// returns `OK`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: for a moment, while another thread takes units back.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_window_try_acquire_up_to(
    window: *mut ThiscpuRateWindow,
    n: u64,
    acquired: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `acquired` null or valid for
    // writes.
    unsafe { write(window, acquired, |window| Ok(window.window.try_acquire_up_to(n))) }
}

/// Stores in `*available` how many units are available at one instant of the call.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: for a moment, while another thread takes units back.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_window_available(
    window: *mut ThiscpuRateWindow,
    available: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `available` null or valid
    // for writes.
    unsafe { write(window, available, |window| Ok(window.window.available())) }
}

/// Stores the limit in `*limit`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_window_limit(
    window: *mut ThiscpuRateWindow,
    limit: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `limit` null or valid for
    // writes.
    unsafe { write(window, limit, |window| Ok(window.window.limit())) }
}

/// Stores the length of the window in `*period_ns`, in nanoseconds.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_rate_window_period(
    window: *mut ThiscpuRateWindow,
    period_ns: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `period_ns` null or valid
    // for writes.
    unsafe { write(window, period_ns, |window| Ok(window.window.period().as_nanos() as u64)) }
}
