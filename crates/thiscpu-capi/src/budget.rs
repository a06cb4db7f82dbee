//! Budgets.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use std::time::Duration;

use thiscpu::__internal::capi::{BUDGET_GATE_AT, BUDGET_SCALE};
use thiscpu::{AcquireError, Budget, TryAcquireError};

use crate::ffi::{UninitHandle, catch, create, deref, free, write};
use crate::last_error;
use crate::status::Status;

/// Units up to a limit that is never exceeded. Rust: `Budget`.
///
/// A unit is anything that a program counts: a byte, a connection, a token. An acquire is refused
/// only if too few units are available. While threads wait for units, no unit counts as available.
/// A call takes about 1 ns while plenty of units are available.
///
/// - Threads: any number may call all functions at once, except `thiscpu_budget_destroy`. Any
///   thread may release the units that another one acquired.
/// - Lifetime: from `thiscpu_budget_create` to `thiscpu_budget_destroy`. Leases and asynchronous
///   acquires of the budget may live longer.
/// - Signal handlers: `thiscpu_budget_release` if no asynchronous acquire waits, and the functions
///   that cost one load.
/// - After `fork`: the child has a budget of its own, with the parent's units but no waiting
///   thread.
/// - Memory order: what a thread did before it released units happens before the return of the call
///   that acquires these units. A refusal orders nothing.
///
/// Releasing more units than are held is a bug of the caller, but it fails no call:
/// `thiscpu_budget_over_released` counts such units, and says what the limit still promises.
///
/// `THISCPU_STATUS_FENCE_DENIED`: available units are lent to CPUs, and only a fence can recall
/// them. Once a sandbox denies fences, each call that needs those units returns this status.
pub struct ThiscpuBudget {
    budget: Budget,
    /// The handle, and each lease and asynchronous acquire. The last one frees the budget.
    owners: AtomicUsize,
    /// If this is a reserve: the budget that its units are from, and their number.
    origin: Option<(BudgetRef, u64)>,
}

impl Drop for ThiscpuBudget {
    fn drop(&mut self) {
        if let Some((origin, units)) = &self.origin {
            // Units of a lease that was forgotten stay acquired, in both budgets.
            origin.budget().release(units.saturating_sub(self.budget.acquired()));
        }
    }
}

impl ThiscpuBudget {
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }
}

/// An owner of a budget, which keeps it alive.
pub(crate) struct BudgetRef(NonNull<ThiscpuBudget>);

impl BudgetRef {
    /// Returns one more owner of a budget that has one.
    pub(crate) fn new(budget: &ThiscpuBudget) -> BudgetRef {
        // Relaxed: an owner keeps the budget meanwhile, so the count cannot fall to 0.
        budget.owners.fetch_add(1, Relaxed);
        BudgetRef(NonNull::from(budget))
    }

    /// Acquires `n` units of a budget and returns the owner of a reserve of them.
    pub(crate) fn try_reserve(budget: &ThiscpuBudget, n: u64) -> Result<BudgetRef, Status> {
        let memory = UninitHandle::new()?;
        budget.budget().try_acquire(n)?;
        let origin = Some((BudgetRef::new(budget), n));
        let reserve = ThiscpuBudget { budget: Budget::new(n), owners: AtomicUsize::new(1), origin };
        Ok(BudgetRef(NonNull::new(memory.init(reserve)).ok_or(Status::NoMemory)?))
    }

    /// Returns the units of a reserve that no lease holds to the budget that they are from.
    pub(crate) fn return_units(&self) {
        // SAFETY: this owner keeps the budget alive.
        if let Some((origin, units)) = &unsafe { self.0.as_ref() }.origin {
            origin.budget().release(self.budget().try_acquire_up_to(*units));
        }
    }

    /// Returns how many units a reserve was made of.
    pub(crate) fn reserved(&self) -> u64 {
        // SAFETY: this owner keeps the budget alive.
        unsafe { self.0.as_ref() }.origin.as_ref().map_or(0, |(_, units)| *units)
    }

    pub(crate) fn budget(&self) -> &Budget {
        // SAFETY: this owner keeps the budget alive, and budgets are only accessed by shared
        // references.
        unsafe { self.0.as_ref() }.budget()
    }

    /// Returns whether both own the same budget.
    pub(crate) fn is(&self, other: &BudgetRef) -> bool {
        self.0 == other.0
    }
}

impl Clone for BudgetRef {
    fn clone(&self) -> BudgetRef {
        // SAFETY: this owner keeps the budget alive.
        BudgetRef::new(unsafe { self.0.as_ref() })
    }
}

impl Drop for BudgetRef {
    fn drop(&mut self) {
        // SAFETY: this owner keeps the budget alive until here.
        // Release: pairs with the fence below, in the thread that frees the budget.
        if unsafe { self.0.as_ref() }.owners.fetch_sub(1, Release) == 1 {
            // Acquire: pairs with the Release of the other owners, whose calls come before.
            fence(Acquire);
            // SAFETY: `create` made the handle, and no owner is left.
            unsafe { free(self.0) };
        }
    }
}

// thiscpu_inline.h takes the address of a handle for the address of its gate, and multiplies by 64.
const _: () =
    assert!(offset_of!(ThiscpuBudget, budget) + BUDGET_GATE_AT == 0 && BUDGET_SCALE == 64);

/// The largest limit of a budget: 2^56.
pub const THISCPU_BUDGET_LIMIT_MAX: u64 = 0x0100_0000_0000_0000;

impl From<TryAcquireError> for Status {
    fn from(error: TryAcquireError) -> Self {
        match error {
            TryAcquireError::Exhausted { available } => {
                last_error::note_available(available);
                Status::Exhausted
            }
            TryAcquireError::Closed => Status::Closed,
        }
    }
}

impl From<AcquireError> for Status {
    fn from(_: AcquireError) -> Self {
        Status::Closed
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
    catch(|| body(unsafe { deref(budget) }?.budget()))
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
        let budget = Budget::new(check_limit(limit)?);
        Ok(ThiscpuBudget { budget, owners: AtomicUsize::new(1), origin: None })
    };
    // SAFETY: the header requires that `budget` is null or valid for writes.
    unsafe { create(budget, new) }
}

/// Destroys the handle of a budget.
///
/// No thread may use the handle, or wait for units, during or after this call. Leases and
/// asynchronous acquires keep the budget itself alive; they stay valid. To end them, call
/// `thiscpu_budget_close` before.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_destroy(budget: *mut ThiscpuBudget) -> Status {
    catch(|| {
        if !budget.is_aligned() {
            return Err(Status::Misaligned);
        }
        // The drop of the handle's own reference. The header requires that the handle is null or
        // live, and that no thread uses it any more.
        drop(NonNull::new(budget).map(BudgetRef));
        Ok(())
    })
}

/// Acquires `n` units, or none. Never waits for units.
///
/// Costs one restartable sequence while plenty of units are available; near the limit an atomic
/// instruction, or one fence. Inlined; see `thiscpu_inline.h`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`.
/// - Blocks: near the limit, for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_try_acquire(budget: *mut ThiscpuBudget, n: u64) -> Status {
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, |budget| Ok(budget.try_acquire(n)?)) }
}

/// Acquires as many units as are available, at most `n`.
///
/// Stores their number in `*acquired`. If no unit is available, or the budget is closed, this is 0
/// and the call returns `OK`. Costs as much as `thiscpu_budget_try_acquire`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
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
    unsafe { write(budget, acquired, |budget| Ok(budget.budget.try_acquire_up_to(n))) }
}

/// Acquires `n` units; blocks until they are available, or the budget is closed.
///
/// First come, first served. A request above the limit blocks until the limit is raised, and so
/// does every request that comes after it.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `CLOSED`, `FENCE_DENIED`.
/// - Blocks: until `n` units are available, or the budget is closed.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquire(budget: *mut ThiscpuBudget, n: u64) -> Status {
    let body = |budget: &Budget| Ok(budget.acquire(n)?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Acquires `n` units; blocks until they are available, for at most `timeout_ns` nanoseconds.
///
/// Otherwise like `thiscpu_budget_acquire`. `UINT64_MAX` is 584 years: no timeout, in practice.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the time is over; `CLOSED`, `FENCE_DENIED`.
/// - Blocks: until `n` units are available, the budget is closed, or the time is over.
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

/// Returns the time until a deadline, in nanoseconds of `CLOCK_MONOTONIC`; 0 if it is over.
pub(crate) fn time_until(deadline_ns: u64) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is valid for writes. The clock exists on each Linux, so the call
    // succeeds.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    Duration::from_nanos(deadline_ns).saturating_sub(now)
}

/// Acquires `n` units; blocks until they are available, or until a deadline.
///
/// `deadline_ns` is in nanoseconds of `CLOCK_MONOTONIC`. Otherwise like `thiscpu_budget_acquire`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the deadline is over; `CLOSED`, `FENCE_DENIED`.
/// - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquire_deadline(
    budget: *mut ThiscpuBudget,
    n: u64,
    deadline_ns: u64,
) -> Status {
    let body = |budget: &Budget| Ok(budget.acquire_timeout(n, time_until(deadline_ns))?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Releases `n` units. Another thread may have acquired them.
///
/// Costs one restartable sequence, or one atomic addition. Inlined; see `thiscpu_inline.h`.
///
/// More units than are held: see `thiscpu_budget_over_released`. More than
/// `THISCPU_BUDGET_LIMIT_MAX` units are not released at all.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed, if no asynchronous acquire waits: its callback would run in the
///   handler.
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
/// While any thread waits for units it stores 0. For a closed budget it stores how many units no
/// caller holds. Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_available(
    budget: *mut ThiscpuBudget,
    available: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `available` null or valid
    // for writes.
    unsafe { write(budget, available, |budget| Ok(budget.budget.available())) }
}

/// Stores in `*acquired` how many units are held at one instant of the call.
///
/// Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquired(
    budget: *mut ThiscpuBudget,
    acquired: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `acquired` null or valid for
    // writes.
    unsafe { write(budget, acquired, |budget| Ok(budget.budget.acquired())) }
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
    unsafe { write(budget, limit, |budget| Ok(budget.budget.limit())) }
}

/// Stores in `*units` how many units were released although no caller held them.
///
/// Costs one load. Such a release is a bug of its caller. The budget finds it when more units are
/// available than the limit allows, discards the excess, and adds it to this number. For each
/// budget, the first excess is also reported on standard error.
///
/// The excess may be found late: while other callers hold as many units, or until the next fence,
/// such as that of `thiscpu_budget_available`. Until then the limit can be exceeded: if callers
/// have released `e` units too many and this number is `d`, at most `limit + e - d` units are held.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_over_released(
    budget: *mut ThiscpuBudget,
    units: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `units` null or valid for
    // writes.
    unsafe { write(budget, units, |budget| Ok(budget.budget.over_released())) }
}

/// Changes the limit, at one instant of the call.
///
/// A limit below the units held takes nothing from their holders. Then no units are granted until
/// enough units have been released. Costs one fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `limit` is greater than
///   `THISCPU_BUDGET_LIMIT_MAX`; `FENCE_DENIED` (the limit is not changed).
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

/// Closes the budget: ends all waits, and refuses all later acquires with `CLOSED`.
///
/// Units that are held stay held; release them as usual. `thiscpu_budget_acquired` tells when the
/// last one is back. A budget cannot be opened again; closing it twice does nothing. Costs one
/// fence if units are lent to CPUs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `FENCE_DENIED` (the budget is not closed).
/// - Blocks: for a fence and for other threads that need one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_close(budget: *mut ThiscpuBudget) -> Status {
    let body = |budget: &Budget| {
        budget.close();
        Ok(())
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Stores in `*closed` whether the budget is closed. Costs one load.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_is_closed(
    budget: *mut ThiscpuBudget,
    closed: *mut bool,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `closed` null or valid for
    // writes.
    unsafe { write(budget, closed, |budget| Ok(budget.budget.is_closed())) }
}

/// Stores in `*waiters` how many threads and asynchronous acquires wait for units.
///
/// Costs one load.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_waiters(
    budget: *mut ThiscpuBudget,
    waiters: *mut usize,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `waiters` null or valid for
    // writes.
    unsafe { write(budget, waiters, |budget| Ok(budget.budget.waiters())) }
}
