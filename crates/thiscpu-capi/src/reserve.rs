//! Reserves: units of a budget that are set aside.

use crate::budget::{BudgetRef, ThiscpuBudget};
use crate::ffi::{create, deref, destroy, write};
use crate::lease::ThiscpuLease;
use crate::status::Status;

/// Units of a budget that are set aside for the owner of the handle. Rust: `Reserve`.
///
/// The owner can use them even when the budget is exhausted. A reserve keeps its budget alive.
///
/// - Threads: any number may call all functions at once, except `thiscpu_reserve_destroy`.
/// - Lifetime: from `thiscpu_budget_try_reserve` to `thiscpu_reserve_destroy`. Leases of the
///   reserve may live longer.
/// - Signal handlers: none of its functions.
/// - After `fork`: the child has reserves of its own, on a budget of its own.
pub struct ThiscpuReserve(BudgetRef);

impl Drop for ThiscpuReserve {
    fn drop(&mut self) {
        self.0.return_units();
    }
}

/// Acquires `n` units as a reserve, and stores its handle in `*reserve`.
///
/// Never waits for units. Costs as much as `thiscpu_budget_try_acquire`, and the memory of two
/// handles.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`.
/// - Blocks: near the limit, for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_try_reserve(
    budget: *mut ThiscpuBudget,
    n: u64,
    reserve: *mut *mut ThiscpuReserve,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live.
        let budget = unsafe { deref(budget) }?;
        BudgetRef::try_reserve(budget, n).map(ThiscpuReserve)
    };
    // SAFETY: the header requires that `reserve` is null or valid for writes.
    unsafe { create(reserve, new) }
}

/// Takes `n` units of the reserve as a lease, and stores its handle in `*lease`.
///
/// Never waits for units.
/// Destroying the lease returns them to the reserve. If it is forgotten by `thiscpu_lease_forget`,
/// they stay acquired from the budget after the reserve is destroyed.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `FENCE_DENIED`; `EXHAUSTED` if the reserve has
///   fewer units left.
/// - Blocks: for other threads that use the reserve.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_reserve_try_lease(
    reserve: *mut ThiscpuReserve,
    n: u64,
    lease: *mut *mut ThiscpuLease,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live.
        let own = &unsafe { deref(reserve) }?.0;
        own.budget().try_acquire(n)?;
        Ok(ThiscpuLease::new(own.clone(), n))
    };
    // SAFETY: the header requires that `lease` is null or valid for writes.
    unsafe { create(lease, new) }
}

/// Stores in `*available` how many units of the reserve are left, at one instant of the call.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a fence and for other threads that use the reserve.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_reserve_available(
    reserve: *mut ThiscpuReserve,
    available: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `available` null or valid
    // for writes.
    unsafe { write(reserve, available, |reserve| Ok(reserve.0.budget().available())) }
}

/// Stores in `*units` how many units were set aside.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_reserve_units(
    reserve: *mut ThiscpuReserve,
    units: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `units` null or valid for
    // writes.
    unsafe { write(reserve, units, |reserve| Ok(reserve.0.reserved())) }
}

/// Destroys a reserve, and releases the units that no lease holds to the budget.
///
/// The units of its leases are released when the last of these leases is destroyed.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`, `FENCE_DENIED` (the reserve is destroyed, and its units are lost).
/// - Blocks: for a fence; and as `thiscpu_budget_destroy` does, if it was the last owner of a
///   destroyed budget.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_reserve_destroy(reserve: *mut ThiscpuReserve) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(reserve) }
}
