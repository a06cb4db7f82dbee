//! Budgets.

use std::mem::offset_of;
use std::time::Duration;

use thiscpu::__internal::capi::{BUDGET_GATE_AT, BUDGET_SCALE};
use thiscpu::{Budget, Exhausted};

use crate::ffi::{catch, create, deref, destroy, write};
use crate::status::Status;

/// Units up to a limit that is never exceeded. Rust: `Budget`.
///
/// A unit is anything that a program counts: a byte, a connection, a token. An acquire is refused
/// only if too few units are available. While threads wait for units, no unit counts as available.
/// A call takes about 1 ns while plenty of units are available.
///
/// - Threads: any number may call all functions at once, except `thiscpu_budget_destroy`. Any
///   thread may release the units that another one acquired.
/// - Lifetime: from `thiscpu_budget_create` to `thiscpu_budget_destroy`.
/// - Signal handlers: `thiscpu_budget_release` only.
/// - After `fork`: the child has a budget of its own, with the parent's units but no waiting
///   thread.
/// - Memory order: a budget orders nothing but itself. Unlike with a mutex or a semaphore, an
///   acquire need not see what another thread wrote before it released. Hand data over by other
///   means.
///
/// `THISCPU_STATUS_OVER_RELEASED`: if more units are released than are held, that call or a later
/// call of any thread returns this status once. The budget has then discarded the excess and is
/// consistent again. An acquire that returns this status has acquired nothing; call it again.
///
/// `THISCPU_STATUS_FENCE_DENIED`: available units are lent to CPUs, and only a fence can recall
/// them. Once a sandbox denies fences, each call that needs those units returns this status.
pub struct ThiscpuBudget(Budget);

// thiscpu_inline.h takes the address of a handle for the address of its gate, and multiplies by 64.
const _: () = assert!(offset_of!(ThiscpuBudget, 0) + BUDGET_GATE_AT == 0 && BUDGET_SCALE == 64);

/// The largest limit of a budget: 2^56.
pub const THISCPU_BUDGET_LIMIT_MAX: u64 = 0x0100_0000_0000_0000;

impl From<Exhausted> for Status {
    fn from(_: Exhausted) -> Self {
        Status::Exhausted
    }
}

fn check_limit(limit: u64) -> Result<u64, Status> {
    if limit <= Budget::LIMIT_MAX { Ok(limit) } else { Err(Status::OutOfRange) }
}

/// Calls `body` with the budget of a handle.
///
/// # Safety
///
/// The handle is null, misaligned or live.
unsafe fn with_budget(
    budget: *mut ThiscpuBudget,
    body: impl FnOnce(&Budget) -> Result<(), Status>,
) -> Status {
    // SAFETY: the caller guarantees that the handle is null, misaligned or live.
    catch(|| body(&unsafe { deref(budget) }?.0))
}

/// Creates a budget of `limit` available units and stores its handle in `*budget`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
///   `OUT_OF_RANGE` if `limit` is greater than `THISCPU_BUDGET_LIMIT_MAX`.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_create(
    limit: u64,
    budget: *mut *mut ThiscpuBudget,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        Ok(ThiscpuBudget(Budget::new(check_limit(limit)?)))
    };
    // SAFETY: the header requires that `budget` is null or valid for writes.
    unsafe { create(budget, new) }
}

/// Destroys a budget.
///
/// No thread may use the handle, or wait for units, during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_destroy(budget: *mut ThiscpuBudget) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(budget) }
}

/// Acquires `n` units, or none. Never waits for units.
///
/// Costs one restartable sequence while plenty of units are available; near the limit an atomic
/// instruction, or one fence. Inlined; see `thiscpu_inline.h`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`; `OVER_RELEASED` (call again), `FENCE_DENIED`.
/// - Blocks: near the limit, for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_try_acquire(budget: *mut ThiscpuBudget, n: u64) -> Status {
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, |budget| Ok(budget.try_acquire(n)?)) }
}

/// Acquires as many units as are available, at most `n`.
///
/// Stores their number in `*acquired`. If no unit is available, this is 0 and the call returns
/// `OK`. Costs as much as `thiscpu_budget_try_acquire`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OVER_RELEASED` (call again), `FENCE_DENIED`.
/// - Blocks: near the limit, for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_try_acquire_up_to(
    budget: *mut ThiscpuBudget,
    n: u64,
    acquired: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `acquired` null or valid for
    // writes.
    unsafe { write(budget, acquired, |budget| Ok(budget.0.try_acquire_up_to(n))) }
}

/// Acquires `n` units; blocks until they are available.
///
/// First come, first served. A request above the limit blocks until the limit is raised, and so
/// does every request that comes after it.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OVER_RELEASED` (call again), `FENCE_DENIED`.
/// - Blocks: until `n` units are available.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquire(budget: *mut ThiscpuBudget, n: u64) -> Status {
    let body = |budget: &Budget| {
        budget.acquire(n);
        Ok(())
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Acquires `n` units; blocks until they are available, for at most `timeout_ns` nanoseconds.
///
/// Otherwise like `thiscpu_budget_acquire`. `UINT64_MAX` is 584 years: no timeout, in practice.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the time is over; `OVER_RELEASED` (call again),
///   `FENCE_DENIED`.
/// - Blocks: until `n` units are available or the time is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquire_timeout(
    budget: *mut ThiscpuBudget,
    n: u64,
    timeout_ns: u64,
) -> Status {
    let body = |budget: &Budget| Ok(budget.acquire_timeout(n, Duration::from_nanos(timeout_ns))?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Releases `n` units. Another thread may have acquired them.
///
/// Costs one restartable sequence, or one atomic addition. Inlined; see `thiscpu_inline.h`.
///
/// Do not repeat a release that fails. On `OVER_RELEASED` the call has released as many of its
/// units as were held, or none if `n` is more than all units held. `FENCE_DENIED` occurs only if
/// more units were released than are held; the units of this call are then lost.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OVER_RELEASED` (do not call again), `FENCE_DENIED`.
/// - Blocks: never, unless more units are released than are held. Reporting that takes a lock.
/// - Signal handlers: allowed. If a handler releases more units than are held, it may wait forever
///   for a lock of the interrupted thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_release(budget: *mut ThiscpuBudget, n: u64) -> Status {
    let body = |budget: &Budget| {
        budget.release(n);
        Ok(())
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Stores in `*available` how many units are available at one instant of the call.
///
/// While any thread waits for units it stores 0. Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OVER_RELEASED` (call again), `FENCE_DENIED`.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_available(
    budget: *mut ThiscpuBudget,
    available: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `available` null or valid
    // for writes.
    unsafe { write(budget, available, |budget| Ok(budget.0.available())) }
}

/// Stores in `*acquired` how many units are held at one instant of the call.
///
/// Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OVER_RELEASED` (call again), `FENCE_DENIED`.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquired(
    budget: *mut ThiscpuBudget,
    acquired: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `acquired` null or valid for
    // writes.
    unsafe { write(budget, acquired, |budget| Ok(budget.0.acquired())) }
}

/// Stores the limit in `*limit`. Costs one load.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_limit(
    budget: *mut ThiscpuBudget,
    limit: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `limit` null or valid for
    // writes.
    unsafe { write(budget, limit, |budget| Ok(budget.0.limit())) }
}

/// Changes the limit, at one instant of the call.
///
/// A limit below the units held takes nothing from their holders. Then no units are granted until
/// enough units have been released. Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `limit` is greater than
///   `THISCPU_BUDGET_LIMIT_MAX`; `OVER_RELEASED` (the limit is changed nevertheless);
///   `FENCE_DENIED` (the limit is not changed).
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_set_limit(
    budget: *mut ThiscpuBudget,
    limit: u64,
) -> Status {
    let body = |budget: &Budget| {
        budget.set_limit(check_limit(limit)?);
        Ok(())
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}
