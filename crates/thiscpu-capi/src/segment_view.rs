//! Segments that a process can only read.

use std::ffi::c_char;

use thiscpu::__internal::capi::DynCountersView;
use thiscpu::{Bounds, BudgetParticipant, BudgetState, BudgetView, CounterView, SegmentView};

use crate::counter::ThiscpuBounds;
use crate::counters::THISCPU_COUNTERS_MAX;
use crate::ffi::{catch, copy_out, create, deref, destroy, name, write};
use crate::segment::{duplicate, path_of};
use crate::status::Status;

/// A segment that this process can read, but not change. Rust: `SegmentView`.
///
/// An exact sum is a write, so a view gives bounds of counters: see `thiscpu_counter_view_bounds`.
/// Of a budget it gives the last state: see `thiscpu_budget_view_state`. For a monitoring program
/// that runs as another user, create the segment with a mode such as 0644. The owner of the file is
/// not checked.
///
/// - Threads: any number may call all functions at once, except `thiscpu_segment_view_close`.
/// - Lifetime: until `thiscpu_segment_view_close`. Each counter and budget that was opened in it
///   keeps it attached.
/// - Signal handlers: `_is_lost`.
/// - After `fork`: the child has the view of its parent.
/// - SIGBUS: as `thiscpu_segment`.
pub struct ThiscpuSegmentView(pub(crate) SegmentView);

/// A counter of a segment that this process can only read. Rust: `CounterView`.
///
/// - Threads: any number may call all functions at once, except `thiscpu_counter_view_close`.
/// - Lifetime: from `thiscpu_counter_view_open` to `thiscpu_counter_view_close`.
/// - Signal handlers: `_bounds`.
/// - After `fork`: the child has the handle of its parent.
pub struct ThiscpuCounterView(CounterView);

/// Counters of a segment that this process can only read. Rust: `CountersView`.
///
/// - Threads: any number may call all functions at once, except `thiscpu_counters_view_close`.
/// - Lifetime: from `thiscpu_counters_view_open` to `thiscpu_counters_view_close`.
/// - Signal handlers: `_len`.
/// - After `fork`: the child has the handle of its parent.
pub struct ThiscpuCountersView(DynCountersView);

/// A budget of a segment that this process can only read. Rust: `BudgetView`.
///
/// - Threads: any number may call all functions at once, except `thiscpu_budget_view_close`.
/// - Lifetime: from `thiscpu_budget_view_open` to `thiscpu_budget_view_close`.
/// - Signal handlers: `_state`.
/// - After `fork`: the child has the handle of its parent.
pub struct ThiscpuBudgetView(BudgetView);

/// A budget as the last operation has left it; see `thiscpu_budget_view_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuBudgetState {
    /// The limit.
    pub limit: u64,
    /// The free units in the pool; negative if more units are held than the limit allows.
    pub free: i64,
    /// Whether all free units were in the pool, so that `limit - free` were held.
    ///
    /// Otherwise at most that many were held.
    pub is_exact: bool,
    /// Whether the free units are promised to a waiter.
    pub is_queued: bool,
    /// Whether the budget is closed.
    pub is_closed: bool,
}

/// A process that uses budgets of a segment; see `thiscpu_budget_view_participants`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuBudgetParticipant {
    /// The number of its slot in the segment, below the segment's number of participants.
    pub slot: u32,
    /// Its process ID, in its own PID namespace.
    pub pid: u32,
    /// The units of the budget that it holds; 0 if it has released more than it held.
    ///
    /// Exact if the process has ended, unless others change the pool during each of 100 looks.
    /// Otherwise units that it acquires or releases meanwhile may be counted, or not. The units of
    /// a release count until they are free, also if the process was killed in it.
    pub held: u64,
    /// Whether the process still exists, running or stopped.
    ///
    /// Found by the slot's lock and, in the same PID namespace, by the process ID. A process that
    /// has closed its descriptors counts as ended in other namespaces. Units of an ended process
    /// are on the way back.
    pub is_alive: bool,
}

pub(crate) fn to_c(bounds: Bounds) -> ThiscpuBounds {
    let Bounds { low, estimate, high } = bounds;
    ThiscpuBounds { low, estimate, high }
}

/// Attaches to the segment at a path, to read it, and stores its handle in `*view`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_SEGMENT`; `SYSTEM` with `errno`, such as
///   `ENOENT`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_view_open(
    path: *const c_char,
    view: *mut *mut ThiscpuSegmentView,
) -> Status {
    let new = || {
        // SAFETY: the header requires that `path` is null or a string.
        let path = unsafe { path_of(path) }?;
        Ok(ThiscpuSegmentView(SegmentView::open(path)?))
    };
    // SAFETY: the header requires that `view` is null or valid for writes.
    unsafe { create(view, new) }
}

/// Attaches to the segment of a descriptor, to read it, and stores its handle in `*view`.
///
/// The descriptor stays the caller's, and may be closed after this call.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_SEGMENT`; `SYSTEM` with `errno`, such as
///   `EBADF`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_view_from_fd(
    fd: i32,
    view: *mut *mut ThiscpuSegmentView,
) -> Status {
    let new = || Ok(ThiscpuSegmentView(SegmentView::from_fd(duplicate(fd)?)?));
    // SAFETY: the header requires that `view` is null or valid for writes.
    unsafe { create(view, new) }
}

/// Closes a view. No thread may use the handle during or after this call.
///
/// Counters that were opened in it stay usable.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_view_close(view: *mut ThiscpuSegmentView) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(view) }
}

/// Stores in `*lost` whether a part of the file is gone, because somebody has shortened it.
///
/// Then the bounds of each counter are `INT64_MIN` and `INT64_MAX`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_view_is_lost(
    view: *mut ThiscpuSegmentView,
    lost: *mut bool,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `lost` null or valid for
    // writes.
    unsafe { write(view, lost, |view| Ok(view.0.is_lost())) }
}

/// Finds the counter of a name in a view, and stores its handle in `*counter`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`,
///   `NO_SUCH_OBJECT`; `WRONG_KIND` if the name is that of another kind of object.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_view_open(
    view: *mut ThiscpuSegmentView,
    name: *const c_char,
    counter: *mut *mut ThiscpuCounterView,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and `name` null or a string.
        let (view, name) = unsafe { (deref(view)?, self::name(name)?) };
        Ok(ThiscpuCounterView(view.0.counter(name)?))
    };
    // SAFETY: the header requires that `counter` is null or valid for writes.
    unsafe { create(counter, new) }
}

/// Closes a handle, which no thread may use during or after this call. The counter stays.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_view_close(counter: *mut ThiscpuCounterView) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(counter) }
}

/// Stores bounds in `*bounds`; the value was within them at one instant of the call.
///
/// Equal bounds are the exact value: nobody changed the counter meanwhile. If the counter is only
/// added to, both bounds lie between its values at the beginning and at the end of the call. If the
/// value is unknown, they are `INT64_MIN` and `INT64_MAX`: adders kept saving large amounts, a sum
/// of one sign overflowed, there was no room at the first negative amount, or the segment is lost.
/// Costs a few loads for each lane.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counter_view_bounds(
    counter: *mut ThiscpuCounterView,
    bounds: *mut ThiscpuBounds,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `bounds` null or valid for
    // writes.
    unsafe { write(counter, bounds, |counter| Ok(to_c(counter.0.bounds()))) }
}

/// Finds the counters of a name in a view, and stores their handle in `*counters`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`,
///   `NO_SUCH_OBJECT`; `INVALID_SIZE` if `count` is 0 or greater than `THISCPU_COUNTERS_MAX`;
///   `WRONG_KIND` if the name is that of another kind of object or number of counters.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_view_open(
    view: *mut ThiscpuSegmentView,
    name: *const c_char,
    count: usize,
    counters: *mut *mut ThiscpuCountersView,
) -> Status {
    let new = || {
        if !(1..=THISCPU_COUNTERS_MAX).contains(&count) {
            return Err(Status::InvalidSize);
        }
        // SAFETY: the header requires that the handle is null or live, and `name` null or a string.
        let (view, name) = unsafe { (deref(view)?, self::name(name)?) };
        Ok(ThiscpuCountersView(DynCountersView::open(&view.0, name, count)?))
    };
    // SAFETY: the header requires that `counters` is null or valid for writes.
    unsafe { create(counters, new) }
}

/// Closes a handle, which no thread may use during or after this call. The counters stay.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_view_close(counters: *mut ThiscpuCountersView) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(counters) }
}

/// Stores the number of counters in `*count`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_view_len(
    counters: *mut ThiscpuCountersView,
    count: *mut usize,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `count` null or valid for
    // writes.
    unsafe { write(counters, count, |counters| Ok(counters.0.len())) }
}

/// Stores bounds of each counter in `bounds`, all of which hold at one instant of the call.
///
/// `capacity` is the number of bounds that `bounds` has room for. Otherwise as
/// `thiscpu_counter_view_bounds`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `INVALID_SIZE` if `capacity` is less than the number of
///   counters.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_counters_view_bounds(
    counters: *mut ThiscpuCountersView,
    bounds: *mut ThiscpuBounds,
    capacity: usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let counters = &unsafe { deref(counters) }?.0;
        if capacity < counters.len() {
            return Err(Status::InvalidSize);
        }
        // SAFETY: the header requires that `bounds` is null or valid for writes of `capacity`
        // values.
        unsafe { copy_out(bounds, capacity, counters.bounds().into_iter().map(to_c)) }.map(drop)
    })
}

/// Finds the budget of a name in a view; stores its handle in `*budget`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`,
///   `NO_SUCH_OBJECT`, `WRONG_KIND`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_view_open(
    view: *mut ThiscpuSegmentView,
    name: *const c_char,
    budget: *mut *mut ThiscpuBudgetView,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and `name` null or a string.
        let (view, name) = unsafe { (deref(view)?, self::name(name)?) };
        Ok(ThiscpuBudgetView(view.0.budget(name)?))
    };
    // SAFETY: the header requires that `budget` is null or valid for writes.
    unsafe { create(budget, new) }
}

/// Closes a handle, which no thread may use during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_view_close(budget: *mut ThiscpuBudgetView) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(budget) }
}

/// Stores the processes that use budgets of the segment, in the order of their slots.
///
/// Stores the first `capacity` of them in `processes`, and in `*count` how many there are, at
/// most 1024. Includes processes that hold nothing of this budget, and ended processes whose units
/// no other process has taken back yet. Changes nothing in the segment. If the file was shortened,
/// there are none. Costs a few loads for each process and lane, and a few system calls for each
/// process; more if it does not hold its lock. The loads for an ended process repeat while other
/// processes change the budget's pool, at most 100 times.
///
/// - NULL: allowed for `processes` if `capacity` is 0; otherwise not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_view_participants(
    budget: *mut ThiscpuBudgetView,
    processes: *mut ThiscpuBudgetParticipant,
    capacity: usize,
    count: *mut usize,
) -> Status {
    let to_c = |participant| {
        let BudgetParticipant { slot, pid, held, is_alive, .. } = participant;
        ThiscpuBudgetParticipant { slot, pid, held, is_alive }
    };
    let get = |budget: &ThiscpuBudgetView| {
        let all = budget.0.participants().into_iter().map(to_c);
        // SAFETY: the header requires that `processes` is null or valid for writes of `capacity`
        // values.
        unsafe { copy_out(processes, capacity, all) }
    };
    // SAFETY: the header requires that the handle is null or live, and `count` null or valid for
    // writes.
    unsafe { write(budget, count, get) }
}

/// Stores in `*state` the state that the last operation on the budget has left.
///
/// A recall of all free units would be a write, so a view makes none. Therefore the state says
/// whether it is exact. Units of processes that have ended count as held until another process
/// takes them back. If the file was shortened, all numbers are 0, and the state is not exact. Costs
/// a few loads and a system call.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_view_state(
    budget: *mut ThiscpuBudgetView,
    state: *mut ThiscpuBudgetState,
) -> Status {
    let get = |budget: &ThiscpuBudgetView| {
        let BudgetState { limit, free, is_exact, is_queued, is_closed, .. } = budget.0.state();
        Ok(ThiscpuBudgetState { limit, free, is_exact, is_queued, is_closed })
    };
    // SAFETY: the header requires that the handle is null or live, and `state` null or valid for
    // writes.
    unsafe { write(budget, state, get) }
}
