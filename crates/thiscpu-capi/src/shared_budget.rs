//! Budgets in a segment.

use std::ffi::c_char;
use std::time::Duration;

use thiscpu::{SharedAcquireError, SharedBudget};

use crate::budget::time_until;
use crate::ffi::{catch, create, deref, destroy, name, write};
use crate::last_error::{note, note_available};
use crate::segment::ThiscpuSegment;
use crate::status::Status;

/// Units up to a limit that processes share and that is never exceeded. Rust: `SharedBudget`.
///
/// The guarantees are those of `thiscpu_budget`, over all processes. If a process ends, also by
/// `SIGKILL`, all units that it held come back. That happens at the next call that would refuse,
/// wait or report otherwise, and within 100 ms if anybody waits.
///
/// - Threads: any number may call all functions at once, except `thiscpu_shared_budget_destroy`.
///   A thread may release units that another thread of its process acquired.
/// - Lifetime: from `thiscpu_shared_budget_open` to `thiscpu_shared_budget_destroy`. The budget
///   itself stays in the segment. When the last handle of the segment and of its objects is
///   destroyed, the units that this process held come back.
/// - Signal handlers: `_release`, `_over_released`, `_is_closed` and `_waiters`.
/// - After `fork`: the child is a participant of its own and holds nothing. It must not release
///   units that its parent acquired.
/// - Memory order: what a thread did before it released units happens before the return of the call
///   that acquires these units, in any process. A refusal orders nothing.
///
/// A release of more units than the process holds is a bug of its caller, but no call fails because
/// of it; see `thiscpu_shared_budget_over_released`.
pub struct ThiscpuSharedBudget(SharedBudget);

impl ThiscpuSharedBudget {
    pub(crate) fn budget(&self) -> &SharedBudget {
        &self.0
    }
}

/// The largest limit of a shared budget: 2^30 - 1.
pub const THISCPU_SHARED_BUDGET_LIMIT_MAX: u64 = 0x3fff_ffff;
const _: () = assert!(THISCPU_SHARED_BUDGET_LIMIT_MAX == SharedBudget::LIMIT_MAX);

impl From<SharedAcquireError> for Status {
    fn from(error: SharedAcquireError) -> Self {
        match error {
            SharedAcquireError::Exhausted { available } => {
                note_available(available);
                Status::Exhausted
            }
            SharedAcquireError::Closed => Status::Closed,
            SharedAcquireError::NoSlot(error) => Status::from(*error),
            SharedAcquireError::Lost => {
                note(format_args!("{error}"));
                Status::InvalidSegment
            }
            _ => Status::Internal,
        }
    }
}

/// Calls `body` with the budget of a handle.
///
/// # Safety
///
/// The handle is null, misaligned or live.
unsafe fn with_budget(
    budget: *mut ThiscpuSharedBudget,
    body: impl FnOnce(&SharedBudget) -> Result<(), Status>,
) -> Status {
    // SAFETY: the caller guarantees that the handle is null, misaligned or live.
    catch(|| body(&unsafe { deref(budget) }?.0))
}

/// Finds the budget of a name in a segment, or makes it; stores its handle in `*budget`.
///
/// A budget that exists keeps its limit, whatever `limit` is; see
/// `thiscpu_shared_budget_set_limit`. The first call of a process takes one of the segment's slots
/// for it. A name is UTF-8 of 1 to 200 bytes, without control characters.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `SEGMENT_FULL`;
///   `OUT_OF_RANGE` if `limit` is greater than `THISCPU_SHARED_BUDGET_LIMIT_MAX`; `WRONG_KIND` if
///   the name is that of another kind of object; `NO_SLOT`; `SYSTEM` with `errno`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_open(
    segment: *mut ThiscpuSegment,
    name: *const c_char,
    limit: u64,
    budget: *mut *mut ThiscpuSharedBudget,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and `name` null or a string.
        let (segment, name) = unsafe { (deref(segment)?, self::name(name)?) };
        Ok(ThiscpuSharedBudget(segment.0.budget(name, limit)?))
    };
    // SAFETY: the header requires that `budget` is null or valid for writes.
    unsafe { create(budget, new) }
}

/// Destroys a handle, which no thread may use during or after this call. The budget stays.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_destroy(budget: *mut ThiscpuSharedBudget) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(budget) }
}

/// Acquires `n` units, or none. Never waits for units.
///
/// Costs one locked instruction if this process has credit on this CPU; otherwise two exchanges of
/// 16 bytes. A refusal makes a system call for each process that holds units.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`, `CLOSED`; in a child that can take no slot also
///   `NO_SLOT`, and `SYSTEM` with `errno`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_try_acquire(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, |budget| Ok(budget.try_acquire(n)?)) }
}

/// Acquires as many units as are available, at most `n`, and stores in `*acquired` how many.
///
/// Stores 0 if no unit is available, if the budget is closed, or if
/// `thiscpu_shared_budget_try_acquire` would fail for another reason.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_try_acquire_up_to(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    acquired: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `acquired` null or valid for
    // writes.
    unsafe { write(budget, acquired, |budget| Ok(budget.0.try_acquire_up_to(n))) }
}

/// Acquires `n` units; blocks until they are available, or the budget is closed.
///
/// First come, first served, over all processes. A request above the limit blocks until the limit
/// is raised, and blocks every request that comes after it.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `CLOSED`; in a child that can take no slot also `NO_SLOT`, and
///   `SYSTEM` with `errno`.
/// - Blocks: until `n` units are available, or the budget is closed.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_acquire(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, |budget| Ok(budget.acquire(n)?)) }
}

/// Acquires `n` units; blocks until they are available, for at most `timeout_ns` nanoseconds.
///
/// Otherwise like `thiscpu_shared_budget_acquire`. `UINT64_MAX` is 584 years: no timeout, in
/// practice.
///
/// - NULL: not allowed.
/// - Returns: as `thiscpu_shared_budget_acquire`; `EXHAUSTED` if the time is over.
/// - Blocks: until `n` units are available, the budget is closed, or the time is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_acquire_timeout(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    timeout_ns: u64,
) -> Status {
    let timeout = Duration::from_nanos(timeout_ns);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, |budget| Ok(budget.acquire_timeout(n, timeout)?)) }
}

/// Acquires `n` units; blocks until they are available, or until a deadline.
///
/// `deadline_ns` is in nanoseconds of `CLOCK_MONOTONIC`. Otherwise like
/// `thiscpu_shared_budget_acquire`.
///
/// - NULL: not allowed.
/// - Returns: as `thiscpu_shared_budget_acquire`; `EXHAUSTED` if the deadline is over.
/// - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_acquire_deadline(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    deadline_ns: u64,
) -> Status {
    let body = |budget: &SharedBudget| Ok(budget.acquire_timeout(n, time_until(deadline_ns))?);
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Releases `n` units, which another thread of this process may have acquired.
///
/// Costs one locked instruction, or two exchanges of 16 bytes near the limit; if it grants units to
/// a waiter, also a system call. If `n` is more than `THISCPU_SHARED_BUDGET_LIMIT_MAX`, the call
/// releases nothing; see `thiscpu_shared_budget_over_released`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_release(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
) -> Status {
    let body = |budget: &SharedBudget| {
        budget.release(n);
        Ok(())
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Stores in `*available` how many units are available at one instant of the call.
///
/// While anybody waits for units it stores 0. For a closed budget it stores how many units nobody
/// holds. Takes the credit of all processes back, and asks the kernel about each that holds units.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_available(
    budget: *mut ThiscpuSharedBudget,
    available: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `available` null or valid
    // for writes.
    unsafe { write(budget, available, |budget| Ok(budget.0.available())) }
}

/// Stores in `*acquired` how many units all processes hold, at one instant of the call.
///
/// Costs as much as `thiscpu_shared_budget_available`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_acquired(
    budget: *mut ThiscpuSharedBudget,
    acquired: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `acquired` null or valid for
    // writes.
    unsafe { write(budget, acquired, |budget| Ok(budget.0.acquired())) }
}

/// Stores in `*units` how many units processes have released although they did not hold them.
///
/// Such a release is a bug of its caller. A call finds the excess when it looks at the units of
/// each process, or when the process has ended. Then the call takes the excess back, and adds it to
/// this number. The first excess of a budget is also reported on standard error. Until an excess is
/// found, the limit can be exceeded by as many units. Costs one load.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_over_released(
    budget: *mut ThiscpuSharedBudget,
    units: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `units` null or valid for
    // writes.
    unsafe { write(budget, units, |budget| Ok(budget.0.over_released())) }
}

/// Stores the limit in `*limit`. Costs two loads.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_limit(
    budget: *mut ThiscpuSharedBudget,
    limit: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `limit` null or valid for
    // writes.
    unsafe { write(budget, limit, |budget| Ok(budget.0.limit())) }
}

/// Changes the limit, for all processes, at one instant of the call.
///
/// A limit below the units held takes nothing from their holders. Then no units are granted until
/// enough units have been released.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `limit` is greater than
///   `THISCPU_SHARED_BUDGET_LIMIT_MAX`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_set_limit(
    budget: *mut ThiscpuSharedBudget,
    limit: u64,
) -> Status {
    let body = |budget: &SharedBudget| match limit <= SharedBudget::LIMIT_MAX {
        true => {
            budget.set_limit(limit);
            Ok(())
        }
        false => Err(Status::OutOfRange),
    };
    // SAFETY: the header requires that the handle is null or live.
    unsafe { with_budget(budget, body) }
}

/// Closes the budget for all processes: ends all waits, and refuses all later acquires.
///
/// Units that are held stay held; release them as usual. A budget cannot be opened again as long as
/// the segment exists; closing it twice does nothing.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_close(budget: *mut ThiscpuSharedBudget) -> Status {
    let body = |budget: &SharedBudget| {
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
pub unsafe extern "C" fn thiscpu_shared_budget_is_closed(
    budget: *mut ThiscpuSharedBudget,
    closed: *mut bool,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `closed` null or valid for
    // writes.
    unsafe { write(budget, closed, |budget| Ok(budget.0.is_closed())) }
}

/// Stores in `*waiters` how many threads and tasks wait for units, in all processes.
///
/// Looks at each waiter of the segment. The number includes waiters of processes whose end nobody
/// has noticed yet.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_waiters(
    budget: *mut ThiscpuSharedBudget,
    waiters: *mut usize,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `waiters` null or valid for
    // writes.
    unsafe { write(budget, waiters, |budget| Ok(budget.0.waiters())) }
}
