//! Leases: units of a budget with an owner.

use std::cell::Cell;
use std::ptr::NonNull;
use std::time::Duration;

use thiscpu::Budget;

use crate::budget::{BudgetRef, ThiscpuBudget, time_until};
use crate::ffi::{OutParam, catch, create, deref, destroy, free, write};
use crate::status::Status;

/// Units of a budget, which are released together with their handle. Rust: `OwnedLease`.
///
/// A lease keeps its budget alive, even after `thiscpu_budget_destroy`.
///
/// - Threads: one thread at a time may use a lease. Any thread may destroy it.
/// - Lifetime: from the call that stores its handle to `thiscpu_lease_destroy`, `_forget`, or
///   `_merge` into another lease.
/// - Signal handlers: none of its functions.
/// - After `fork`: the child has leases of its own, on a budget of its own.
pub struct ThiscpuLease {
    units: Cell<u64>,
    budget: BudgetRef,
}

impl ThiscpuLease {
    /// Wraps units of the budget that the caller has acquired.
    pub(crate) fn new(budget: BudgetRef, units: u64) -> ThiscpuLease {
        ThiscpuLease { units: Cell::new(units), budget }
    }
}

impl Drop for ThiscpuLease {
    fn drop(&mut self) {
        if self.units.get() > 0 {
            self.budget.budget().release(self.units.get());
        }
    }
}

/// Acquires units by `acquire` and stores a lease of them in `out`.
///
/// # Safety
///
/// The handle is null, misaligned or live; `out` is null, misaligned or valid for writes.
unsafe fn lease(
    budget: *mut ThiscpuBudget,
    n: u64,
    out: *mut *mut ThiscpuLease,
    acquire: impl FnOnce(&Budget) -> Result<(), Status>,
) -> Status {
    let new = || {
        // SAFETY: the caller guarantees that the handle is null, misaligned or live.
        let budget = unsafe { deref(budget) }?;
        acquire(budget.budget())?;
        Ok(ThiscpuLease::new(BudgetRef::new(budget), n))
    };
    // SAFETY: the caller guarantees that `out` is null, misaligned or valid for writes.
    unsafe { create(out, new) }
}

/// Acquires `n` units as a lease, whose handle it stores in `*lease`. Never waits for units.
///
/// Costs as much as `thiscpu_budget_try_acquire`, the memory of a handle, and an atomic addition.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`.
/// - Blocks: near the limit, for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_try_lease(
    budget: *mut ThiscpuBudget,
    n: u64,
    lease: *mut *mut ThiscpuLease,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, n, lease, |budget| Ok(budget.try_acquire(n)?)) }
}

/// Acquires `n` units as a lease; blocks until they are available, or the budget is closed.
///
/// Otherwise like `thiscpu_budget_acquire`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `CLOSED`, `FENCE_DENIED`.
/// - Blocks: until `n` units are available, or the budget is closed.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_lease(
    budget: *mut ThiscpuBudget,
    n: u64,
    lease: *mut *mut ThiscpuLease,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, n, lease, |budget| Ok(budget.acquire(n)?)) }
}

/// Acquires `n` units as a lease; blocks until they are available, for at most `timeout_ns`.
///
/// Otherwise like `thiscpu_budget_acquire_timeout`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `EXHAUSTED` if the time is over; `CLOSED`,
///   `FENCE_DENIED`.
/// - Blocks: until `n` units are available, the budget is closed, or the time is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_lease_timeout(
    budget: *mut ThiscpuBudget,
    n: u64,
    timeout_ns: u64,
    lease: *mut *mut ThiscpuLease,
) -> Status {
    let timeout = Duration::from_nanos(timeout_ns);
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, n, lease, |budget| Ok(budget.acquire_timeout(n, timeout)?)) }
}

/// Acquires `n` units as a lease; blocks until they are available, or until a deadline.
///
/// Otherwise like `thiscpu_budget_acquire_deadline`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `EXHAUSTED` if the deadline is over; `CLOSED`,
///   `FENCE_DENIED`.
/// - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_lease_deadline(
    budget: *mut ThiscpuBudget,
    n: u64,
    deadline_ns: u64,
    lease: *mut *mut ThiscpuLease,
) -> Status {
    let acquire = |budget: &Budget| Ok(budget.acquire_timeout(n, time_until(deadline_ns))?);
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, n, lease, acquire) }
}

/// Stores in `*units` how many units the lease holds.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_lease_units(lease: *mut ThiscpuLease, units: *mut u64) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `units` null or valid for
    // writes.
    unsafe { write(lease, units, |lease| Ok(lease.units.get())) }
}

/// Splits off a lease of `n` units and stores its handle in `*part`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `OUT_OF_RANGE` if the lease holds fewer units.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_lease_split(
    lease: *mut ThiscpuLease,
    n: u64,
    part: *mut *mut ThiscpuLease,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live.
        let lease = unsafe { deref(lease) }?;
        lease.units.set(lease.units.get().checked_sub(n).ok_or(Status::OutOfRange)?);
        Ok(ThiscpuLease::new(lease.budget.clone(), n))
    };
    // SAFETY: the header requires that `part` is null or valid for writes.
    unsafe { create(part, new) }
}

/// Adds the units of the lease `other` to `lease`, and destroys the handle `other`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `WRONG_BUDGET` if the leases belong to different budgets, or
///   are one lease (neither is changed or destroyed).
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_lease_merge(
    lease: *mut ThiscpuLease,
    other: *mut ThiscpuLease,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that both handles are null or live.
        let (into, from) = unsafe { (deref(lease)?, deref(other)?) };
        if lease == other || !into.budget.is(&from.budget) {
            return Err(Status::WrongBudget);
        }
        into.units.set(into.units.get() + from.units.take());
        // SAFETY: `create` made the handle, which is not null, and no thread uses it any more: the
        // header says that it is destroyed. Its reference above is not used below.
        unsafe { free(NonNull::new_unchecked(other)) };
        Ok(())
    })
}

/// Destroys the handle of a lease but keeps its units acquired.
///
/// Stores their number in `*units`. Release them by `thiscpu_budget_release`, or they are lost to
/// the budget. The lease does not keep the budget alive any more.
///
/// - NULL: allowed for `units`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: if it was the last owner of a destroyed budget, as `thiscpu_budget_destroy` does.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_lease_forget(lease: *mut ThiscpuLease, units: *mut u64) -> Status {
    catch(|| {
        // SAFETY: the header requires that `units` is null or valid for writes, and the handle null
        // or live.
        let (out, held) = unsafe { (OutParam::optional(units)?, deref(lease)?.units.take()) };
        // SAFETY: `create` made the handle, which is not null, and no thread uses it any more.
        unsafe { free(NonNull::new_unchecked(lease)) };
        if let Some(out) = out {
            out.write(held);
        }
        Ok(())
    })
}

/// Releases the units of a lease and destroys its handle.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: if it was the last owner of a destroyed budget, as `thiscpu_budget_destroy` does.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_lease_destroy(lease: *mut ThiscpuLease) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(lease) }
}
