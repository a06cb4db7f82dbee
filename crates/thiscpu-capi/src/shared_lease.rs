//! Leases of budgets in a segment.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::time::Duration;

use thiscpu::__internal::capi::can_merge;
use thiscpu::{SharedAcquireError, SharedBudget, SharedOwnedLease};

use crate::budget::time_until;
use crate::ffi::{OutParam, catch, create, deref, destroy, free, write};
use crate::shared_budget::ThiscpuSharedBudget;
use crate::status::Status;

/// Units of a shared budget, released with their handle. Rust: `SharedOwnedLease`.
///
/// A lease keeps the segment attached, even after `thiscpu_shared_budget_destroy`. If the process
/// ends, the units of its leases come back.
///
/// - Threads: one thread at a time may use a lease. Any thread may destroy it.
/// - Lifetime: from the call that stores its handle to `thiscpu_shared_lease_destroy`, `_forget`,
///   or `_merge` into another lease.
/// - Signal handlers: none of its functions.
/// - After `fork`: the units stay with the parent. A child that destroys the lease releases
///   nothing.
pub struct ThiscpuSharedLease(RefCell<SharedOwnedLease>);

impl ThiscpuSharedLease {
    pub(crate) fn new(lease: SharedOwnedLease) -> ThiscpuSharedLease {
        ThiscpuSharedLease(RefCell::new(lease))
    }

    fn take_all(&self) -> SharedOwnedLease {
        let mut lease = self.0.borrow_mut();
        let units = lease.units();
        lease.split(units).expect("a lease has its own units")
    }
}

/// Acquires units by `acquire`, and stores the handle of their lease in `out`.
///
/// # Safety
///
/// The handle is null, misaligned or live; `out` is null, misaligned or valid for writes.
unsafe fn lease(
    budget: *mut ThiscpuSharedBudget,
    out: *mut *mut ThiscpuSharedLease,
    acquire: impl FnOnce(&SharedBudget) -> Result<SharedOwnedLease, SharedAcquireError>,
) -> Status {
    let new = || {
        // SAFETY: the caller guarantees that the handle is null, misaligned or live.
        let budget = unsafe { deref(budget) }?;
        Ok(ThiscpuSharedLease::new(acquire(budget.budget())?))
    };
    // SAFETY: the caller guarantees that `out` is null, misaligned or valid for writes.
    unsafe { create(out, new) }
}

/// Acquires `n` units as a lease, whose handle it stores in `*lease`. Never waits for units.
///
/// Costs as much as `thiscpu_shared_budget_try_acquire`, the memory of a handle, and two atomic
/// additions.
///
/// - NULL: not allowed.
/// - Returns: as `thiscpu_shared_budget_try_acquire`; `NO_MEMORY`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_try_lease(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    lease: *mut *mut ThiscpuSharedLease,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, lease, |budget| budget.try_acquire_owned(n)) }
}

/// Acquires `n` units as a lease; blocks until they are available, or the budget is closed.
///
/// Otherwise like `thiscpu_shared_budget_acquire`.
///
/// - NULL: not allowed.
/// - Returns: as `thiscpu_shared_budget_acquire`; `NO_MEMORY`.
/// - Blocks: until `n` units are available, or the budget is closed.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_lease(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    lease: *mut *mut ThiscpuSharedLease,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, lease, |budget| budget.acquire_owned(n).wait()) }
}

/// Acquires `n` units as a lease; blocks until they are available, for at most `timeout_ns`.
///
/// Otherwise like `thiscpu_shared_budget_acquire_timeout`.
///
/// - NULL: not allowed.
/// - Returns: as `thiscpu_shared_budget_acquire_timeout`; `NO_MEMORY`.
/// - Blocks: until `n` units are available, the budget is closed, or the time is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_lease_timeout(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    timeout_ns: u64,
    lease: *mut *mut ThiscpuSharedLease,
) -> Status {
    let timeout = Duration::from_nanos(timeout_ns);
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, lease, |budget| budget.acquire_owned(n).wait_timeout(timeout)) }
}

/// Acquires `n` units as a lease; blocks until they are available, or until a deadline.
///
/// Otherwise like `thiscpu_shared_budget_acquire_deadline`.
///
/// - NULL: not allowed.
/// - Returns: as `thiscpu_shared_budget_acquire_deadline`; `NO_MEMORY`.
/// - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_lease_deadline(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    deadline_ns: u64,
    lease: *mut *mut ThiscpuSharedLease,
) -> Status {
    let timeout = time_until(deadline_ns);
    // SAFETY: the header requires that the handle is null or live, and `lease` null or valid for
    // writes.
    unsafe { self::lease(budget, lease, |budget| budget.acquire_owned(n).wait_timeout(timeout)) }
}

/// Stores in `*units` how many units the lease holds.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_lease_units(
    lease: *mut ThiscpuSharedLease,
    units: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `units` null or valid for
    // writes.
    unsafe { write(lease, units, |lease| Ok(lease.0.borrow().units())) }
}

/// Splits off a lease of `n` units and stores its handle in `*part`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `OUT_OF_RANGE` if the lease holds fewer units.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_lease_split(
    lease: *mut ThiscpuSharedLease,
    n: u64,
    part: *mut *mut ThiscpuSharedLease,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live.
        let split = unsafe { deref(lease) }?.0.borrow_mut().split(n);
        split.map(ThiscpuSharedLease::new).ok_or(Status::OutOfRange)
    };
    // SAFETY: the header requires that `part` is null or valid for writes.
    unsafe { create(part, new) }
}

/// Adds the units of the lease `other` to `lease`, and destroys the handle `other`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `WRONG_BUDGET` if the leases belong to different budgets or
///   processes, or are one lease (neither is changed or destroyed).
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_lease_merge(
    lease: *mut ThiscpuSharedLease,
    other: *mut ThiscpuSharedLease,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that both handles are null or live.
        let (into, from) = unsafe { (deref(lease)?, deref(other)?) };
        if lease == other || !can_merge(&into.0.borrow(), &from.0.borrow()) {
            return Err(Status::WrongBudget);
        }
        into.0.borrow_mut().merge(from.take_all());
        // SAFETY: `create` made the handle, which is not null, and no thread uses it any more: the
        // header says that it is destroyed. The reference above is not used below.
        unsafe { free(NonNull::new_unchecked(other)) };
        Ok(())
    })
}

/// Destroys the handle of a lease but keeps its units acquired.
///
/// Stores their number in `*units`. The caller may release them by `thiscpu_shared_budget_release`.
/// Otherwise they come back when the process ends, or detaches from the segment.
///
/// - NULL: allowed for `units`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_lease_forget(
    lease: *mut ThiscpuSharedLease,
    units: *mut u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that `units` is null or valid for writes, and the handle null
        // or live.
        let (out, held) =
            unsafe { (OutParam::optional(units)?, deref(lease)?.take_all().forget()) };
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
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_lease_destroy(lease: *mut ThiscpuSharedLease) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(lease) }
}
