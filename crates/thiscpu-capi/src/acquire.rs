//! Acquires that wait without a thread, and report by a callback.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use thiscpu::__internal::Lock;
use thiscpu::{Budget, Lease};

use crate::budget::{BudgetRef, ThiscpuBudget};
use crate::ffi::{OutParam, UninitHandle, catch, create, deref, free};
use crate::lease::ThiscpuLease;
use crate::status::Status;

/// A request for units that waits without blocking a thread. Rust: `Budget::acquire_owned`.
///
/// It waits in the queue of `thiscpu_budget_acquire`: first come, first served. Its callback tells
/// when the wait has ended; then `thiscpu_acquire_take` stores the lease. Destroying it cancels the
/// wait, at any time, and loses no unit. It keeps its budget alive.
///
/// - Threads: one thread at a time may use it. Any thread may call its callback.
/// - Lifetime: from `thiscpu_budget_acquire_async` to `thiscpu_acquire_destroy`.
/// - Signal handlers: none of its functions.
/// - After `fork`: the child may destroy it, or call `thiscpu_acquire_take`, which queues it again.
pub struct ThiscpuAcquire {
    /// The handle, if it is not destroyed, and each waker. The last one frees the memory.
    references: AtomicUsize,
    /// Held while the callback runs, and while the handle is destroyed.
    lock: Lock,
    /// Whether the callback may still be called. Accessed under the lock.
    is_alive: Cell<bool>,
    wake: unsafe extern "C" fn(context: *mut c_void),
    context: *mut c_void,
    /// Accessed by the owner of the handle only; dropped when that is destroyed.
    request: UnsafeCell<ManuallyDrop<Request>>,
}

/// The future, and its end. The fields are dropped in this order: the budget last.
struct Request {
    end: End,
    future: thiscpu::Acquire<'static>,
    budget: BudgetRef,
}

enum End {
    Waiting,
    Granted(Lease<'static>),
    Closed,
    Taken,
}

impl ThiscpuAcquire {
    fn new(
        budget: BudgetRef,
        n: u64,
        wake: unsafe extern "C" fn(context: *mut c_void),
        context: *mut c_void,
    ) -> ThiscpuAcquire {
        // SAFETY: `budget` keeps the budget alive and in place, and is dropped after the future and
        // the lease, which alone get this reference.
        let kept: &'static Budget = unsafe { &*std::ptr::from_ref(budget.budget()) };
        let request = Request { end: End::Waiting, future: kept.acquire_async(n), budget };
        ThiscpuAcquire {
            references: AtomicUsize::new(1),
            lock: Lock::new(),
            is_alive: Cell::new(true),
            wake,
            context,
            request: UnsafeCell::new(ManuallyDrop::new(request)),
        }
    }

    /// Polls the future unless its wait has ended. Returns whether it has ended in this call.
    ///
    /// # Safety
    ///
    /// `this` is a live handle, which no other thread uses.
    unsafe fn poll(this: *const ThiscpuAcquire) -> bool {
        // SAFETY: the caller guarantees that the handle is live and that no other thread accesses
        // its request.
        let (acquire, request) = unsafe { (&*this, &mut *(*this).request.get()) };
        if !matches!(request.end, End::Waiting) {
            return false;
        }
        acquire.add_reference();
        // SAFETY: the functions of the table expect this pointer, and the waker owns the reference
        // that was just added.
        let waker = unsafe { Waker::from_raw(RawWaker::new(this.cast(), &WAKER)) };
        // SAFETY: a handle stays where it is, and `release` drops the future in place.
        let future = unsafe { Pin::new_unchecked(&mut request.future) };
        request.end = match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => return false,
            Poll::Ready(Ok(lease)) => End::Granted(lease),
            Poll::Ready(Err(_)) => End::Closed,
        };
        true
    }

    fn add_reference(&self) {
        // Relaxed: the caller has a reference already, so the count cannot fall to 0 meanwhile.
        self.references.fetch_add(1, Relaxed);
    }

    /// Gives up a reference, and frees the memory if it was the last.
    ///
    /// # Safety
    ///
    /// The caller owns a reference to the acquire at `this`, and does not use it any more. If it is
    /// the last one, the request was dropped.
    unsafe fn release(this: *const ThiscpuAcquire) {
        // SAFETY: the caller's reference keeps the memory.
        // Release: pairs with the fence below, in the thread that frees the memory.
        if unsafe { (*this).references.fetch_sub(1, Release) } == 1 {
            // Acquire: pairs with the Release of the other owners, whose uses come before.
            fence(Acquire);
            // SAFETY: `thiscpu_budget_acquire_async` made the handle, which is not null, and no
            // reference is left. The request is `ManuallyDrop`.
            unsafe { free(NonNull::new_unchecked(this.cast_mut())) };
        }
    }

    /// Calls the callback, unless the handle is destroyed.
    fn call(&self) {
        let _guard = self.lock.lock();
        if self.is_alive.get() {
            // SAFETY: the caller of `thiscpu_budget_acquire_async` passed this function to be
            // called with its context until the handle is destroyed, which takes this lock.
            unsafe { (self.wake)(self.context) };
        }
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// # Safety
///
/// `data` is that of a waker of an acquire, which owns a reference.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker's reference keeps the acquire.
    unsafe { &*data.cast::<ThiscpuAcquire>() }.add_reference();
    RawWaker::new(data, &WAKER)
}

/// # Safety
///
/// As for `clone`; the waker gives its reference to this function.
unsafe fn wake(data: *const ()) {
    // SAFETY: the waker's reference keeps the acquire, and is given up once it was called.
    unsafe {
        wake_by_ref(data);
        drop_waker(data);
    }
}

/// # Safety
///
/// As for `clone`.
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker's reference keeps the acquire.
    unsafe { &*data.cast::<ThiscpuAcquire>() }.call();
}

/// # Safety
///
/// As for `clone`; the waker gives its reference to this function.
unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker owns a reference. If it is the last, the handle was destroyed, which drops
    // the request before it gives up its own reference.
    unsafe { ThiscpuAcquire::release(data.cast()) };
}

/// Destroys a handle when dropped.
struct OwnedHandle(*mut ThiscpuAcquire);

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle, which is live until now.
        let acquire = unsafe { &*self.0 };
        let guard = acquire.lock.lock();
        acquire.is_alive.set(false);
        drop(guard);
        // SAFETY: the owner of the handle alone accesses the request, and it is dropped once. The
        // reference of the handle is given up here.
        unsafe {
            ManuallyDrop::drop(&mut *acquire.request.get());
            ThiscpuAcquire::release(self.0);
        }
    }
}

/// Requests `n` units without blocking, and stores the handle of the request in `*acquire`.
///
/// `wake` is called with `context`, once, when the units are granted or the budget is closed. That
/// may be in this call, even before it has stored the handle. Or it is in a call of any thread on
/// the budget, because a call that changes it also does what others left to it. So `wake` must not
/// lock a mutex that a thread may hold while it calls a function on the budget. `wake` should only
/// note the event, for example by a write to an eventfd. It must return, and must not destroy or
/// take an acquire. If a request may wait, signal handlers must not release units of the budget,
/// because they would call `wake`.
///
/// - NULL: allowed for `context`, which is only passed on.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `FENCE_DENIED`. `OK` does not mean that the units
///   are granted; `thiscpu_acquire_take` tells.
/// - Blocks: for other threads that change the budget, and for a fence.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_budget_acquire_async(
    budget: *mut ThiscpuBudget,
    n: u64,
    wake: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
    acquire: *mut *mut ThiscpuAcquire,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that `acquire` is null or valid for writes, and the handle
        // null or live.
        let (out, budget) = unsafe { (OutParam::new(acquire)?, deref(budget)?) };
        let wake = wake.ok_or(Status::NullPointer)?;
        let memory = UninitHandle::<ThiscpuAcquire>::new()?;
        let new = ThiscpuAcquire::new(BudgetRef::new(budget), n, wake, context);
        // A panic of the poll destroys the handle.
        let handle = OwnedHandle(memory.init(new));
        // SAFETY: the handle is new, so no other thread uses it.
        if unsafe { ThiscpuAcquire::poll(handle.0) } {
            // SAFETY: the handle is live.
            unsafe { &*handle.0 }.call();
        }
        out.write(handle.0);
        std::mem::forget(handle);
        Ok(())
    })
}

/// Stores the lease of a granted request in `*lease`. Never waits for units.
///
/// The request still has to be destroyed, which does not affect the lease.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `PENDING` if the request still waits; `CLOSED` if
///   the budget was closed before it was granted; `EMPTY` if its lease was taken before.
/// - Blocks: for other threads that change the budget.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_acquire_take(
    acquire: *mut ThiscpuAcquire,
    lease: *mut *mut ThiscpuLease,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and that no other thread
        // uses it.
        let handle = unsafe { deref(acquire) }?;
        // SAFETY: the handle is live, and no other thread accesses its request.
        let request = unsafe {
            ThiscpuAcquire::poll(handle);
            &mut *handle.request.get()
        };
        match std::mem::replace(&mut request.end, End::Taken) {
            End::Granted(lease) => Ok(ThiscpuLease::new(request.budget.clone(), lease.forget())),
            End::Taken => Err(Status::Empty),
            End::Waiting => {
                request.end = End::Waiting;
                Err(Status::Pending)
            }
            End::Closed => {
                request.end = End::Closed;
                Err(Status::Closed)
            }
        }
    };
    // SAFETY: the header requires that `lease` is null or valid for writes.
    unsafe { create(lease, new) }
}

/// Destroys a request. If it waits, it leaves the queue.
///
/// Units that were granted but not taken are released. After this call its callback is not running,
/// and will not be called.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while the callback runs on another thread, and for other threads that change the
///   budget. Must not be called from a callback.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_acquire_destroy(acquire: *mut ThiscpuAcquire) -> Status {
    catch(|| {
        if !acquire.is_aligned() {
            return Err(Status::Misaligned);
        }
        if !acquire.is_null() {
            drop(OwnedHandle(acquire));
        }
        Ok(())
    })
}
