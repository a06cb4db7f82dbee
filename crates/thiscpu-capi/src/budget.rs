//! Budgets.

use std::mem::offset_of;
use std::time::Duration;

use thiscpu::inside::foreign::{BUDGET_GATE_AT, BUDGET_SCALE};
use thiscpu::{Budget, Exhausted};

use crate::ffi::{call, end, make, place, there};
use crate::status::Status;

/// A limit that is never exceeded and never refused wrongly, at about a nanosecond a call while there is room. Units are
/// whatever the program counts by it: bytes, connections, tokens.
///
/// All its functions may be called by any number of threads at once, `thiscpu_budget_destroy` by the last. Units belong to nobody: who
/// releases them need not be who acquired them. From signal handlers only `thiscpu_budget_release` may be called.
///
/// Who releases more than is held makes an error that is found by that call or by a later one, of whomever, which returns
/// `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` then: what was too much is dropped, and the budget is right again. The same status is returned where fences have become
/// impossible, by each call that finds too little without one: the units that CPUs keep cannot be had any more. Standard error says which it is.
///
/// A budget orders nothing but itself: unlike a mutex or a semaphore it does not have an acquire see what was written before a release.
pub struct ThiscpuBudget(Budget);

// What thiscpu_inline.h says of it.
const _: () = assert!(offset_of!(ThiscpuBudget, 0) + BUDGET_GATE_AT == 0 && BUDGET_SCALE == 64);

/// The largest limit there can be, 2^56.
pub const THISCPU_BUDGET_LIMIT_MAX: u64 = 0x0100_0000_0000_0000;

impl From<Exhausted> for Status {
    fn from(_: Exhausted) -> Self {
        Status::Exhausted
    }
}

fn limited(limit: u64) -> Result<u64, Status> {
    if limit <= Budget::LIMIT_MAX { Ok(limit) } else { Err(Status::OutOfRange) }
}

/// Does something with a budget.
///
/// # Safety
///
/// The handle is null or live.
unsafe fn with(
    budget: *mut ThiscpuBudget,
    body: impl FnOnce(&Budget) -> Result<(), Status>,
) -> Status {
    // SAFETY: the caller's promise.
    call(|| body(&unsafe { there(budget) }?.0))
}

/// Puts a number of a budget's into its place.
///
/// # Safety
///
/// As for `with`, and the place is null or valid.
unsafe fn answer(
    budget: *mut ThiscpuBudget,
    out: *mut u64,
    ask: impl FnOnce(&Budget) -> u64,
) -> Status {
    let body = |budget: &Budget| {
        // SAFETY: the caller's promise.
        let place = unsafe { place(out) }?;
        place.put(ask(budget));
        Ok(())
    };
    // SAFETY: the same promises.
    unsafe { with(budget, body) }
}

/// Makes a budget of `limit` units, all of them free, and puts its handle into `*budget`. The handle is valid until
/// `thiscpu_budget_destroy`.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OUT_OF_RANGE` if the limit is above `THISCPU_BUDGET_LIMIT_MAX`;
/// `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_create(
    limit: u64,
    budget: *mut *mut ThiscpuBudget,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        Ok(ThiscpuBudget(Budget::new(limited(limit)?)))
    };
    // SAFETY: a caller's pointer is null or valid, as the header asks.
    unsafe { make(budget, new) }
}

/// Ends a budget. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor wait for units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_destroy(budget: *mut ThiscpuBudget) -> Status {
    // SAFETY: as above; the handle is the caller's to end.
    unsafe { end(budget) }
}

/// Acquires `n` units, or none. One restartable sequence while there is room; near the limit an atomic instruction, or a fence.
/// Never waits for units.
///
/// Errors: `THISCPU_STATUS_EXHAUSTED`; `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` if it is found now that more was released than
/// acquired, and then it is to be tried again; or if fences have become impossible, and then it is not. Nothing is acquired in either case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_try_acquire(budget: *mut ThiscpuBudget, n: u64) -> Status {
    // SAFETY: a handle is null or live, as the header asks.
    unsafe { with(budget, |budget| Ok(budget.try_acquire(n)?)) }
}

/// Acquires as many units as there are, at most `n`, and puts their number into `*acquired`; 0 is no error.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_try_acquire_up_to(
    budget: *mut ThiscpuBudget,
    n: u64,
    acquired: *mut u64,
) -> Status {
    // SAFETY: as for `thiscpu_budget_try_acquire`, and a caller's pointer is null or valid, as the header asks.
    unsafe { answer(budget, acquired, |budget| budget.try_acquire_up_to(n)) }
}

/// Acquires `n` units, and waits until there are so many: first come, first served. Waits for ever for more than the limit,
/// and those who come later with it, unless the limit is raised. Not from signal handlers.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquire(budget: *mut ThiscpuBudget, n: u64) -> Status {
    let body = |budget: &Budget| {
        budget.acquire(n);
        Ok(())
    };
    // SAFETY: as for `thiscpu_budget_try_acquire`.
    unsafe { with(budget, body) }
}

/// The same, for at most so many nanoseconds; `UINT64_MAX` are 584 years.
///
/// Errors: `THISCPU_STATUS_EXHAUSTED` if the time is over, and nothing was acquired; `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquire_timeout(
    budget: *mut ThiscpuBudget,
    n: u64,
    timeout_ns: u64,
) -> Status {
    let body = |budget: &Budget| Ok(budget.acquire_timeout(n, Duration::from_nanos(timeout_ns))?);
    // SAFETY: as for `thiscpu_budget_try_acquire`.
    unsafe { with(budget, body) }
}

/// Gives `n` units back. One restartable sequence, or one atomic addition. Waits for nobody, unless it finds that more is released than is
/// held.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` if more is released than is held, by this call or an earlier one. What
/// is held of it is released all the same, or nothing if it is more than all that is held. Also if that has to be found out and fences have
/// become impossible, and then the units are lost. Not to be tried again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_release(budget: *mut ThiscpuBudget, n: u64) -> Status {
    let body = |budget: &Budget| {
        budget.release(n);
        Ok(())
    };
    // SAFETY: as for `thiscpu_budget_try_acquire`.
    unsafe { with(budget, body) }
}

/// How many units are free, at one instant of the call, into `*available`; 0 while somebody waits. Costs a fence if CPUs hold
/// credit. Not from signal handlers.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_available(
    budget: *mut ThiscpuBudget,
    available: *mut u64,
) -> Status {
    // SAFETY: as for `thiscpu_budget_try_acquire_up_to`.
    unsafe { answer(budget, available, Budget::available) }
}

/// How many units are held, at one instant of the call, into `*acquired`. Otherwise as `thiscpu_budget_available`.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquired(
    budget: *mut ThiscpuBudget,
    acquired: *mut u64,
) -> Status {
    // SAFETY: as for `thiscpu_budget_try_acquire_up_to`.
    unsafe { answer(budget, acquired, Budget::acquired) }
}

/// The limit, into `*limit`. One load.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_limit(
    budget: *mut ThiscpuBudget,
    limit: *mut u64,
) -> Status {
    // SAFETY: as for `thiscpu_budget_try_acquire_up_to`.
    unsafe { answer(budget, limit, Budget::limit) }
}

/// Changes the limit, at one instant. Below what is held nothing is taken from anybody, and nothing is granted until enough
/// has been released. Costs a fence if CPUs hold credit. Not from signal handlers.
///
/// Errors: `THISCPU_STATUS_OUT_OF_RANGE` if the limit is above `THISCPU_BUDGET_LIMIT_MAX`; `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` if it is
/// found now that more was released than acquired, and the limit is changed all the same; or if fences have become impossible, and it is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_set_limit(
    budget: *mut ThiscpuBudget,
    limit: u64,
) -> Status {
    let body = |budget: &Budget| {
        budget.set_limit(limited(limit)?);
        Ok(())
    };
    // SAFETY: as for `thiscpu_budget_try_acquire`.
    unsafe { with(budget, body) }
}
