//! Acquires from budgets in a segment that wait without a thread, and report by a callback.

use std::cell::RefCell;
use std::ffi::c_void;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use thiscpu::__internal::Lock;
use thiscpu::{SharedAcquireError, SharedAcquireOwned, SharedOwnedLease};

use crate::ffi::{OutParam, UninitHandle, catch, create, deref, destroy};
use crate::shared_budget::ThiscpuSharedBudget;
use crate::shared_lease::ThiscpuSharedLease;
use crate::status::Status;

/// A request for units that blocks no thread. Rust: `SharedBudget::acquire_owned`.
///
/// It waits in the queue of `thiscpu_shared_budget_acquire`: first come, first served, over all
/// processes. Its callback tells when the wait has ended; then `thiscpu_shared_acquire_take` stores
/// the lease. A program may destroy the request at any time, which cancels the wait and loses no
/// unit. A request keeps the segment attached. While requests wait, the process has a thread for
/// each segment, which calls the callbacks.
///
/// - Threads: one thread at a time may use it. Any thread may call its callback.
/// - Lifetime: from `thiscpu_shared_budget_acquire_async` to `thiscpu_shared_acquire_destroy`.
/// - Signal handlers: none of its functions.
/// - After `fork`: the child may destroy it, or call `thiscpu_shared_acquire_take`. In the child,
///   that queues a request of the child.
pub struct ThiscpuSharedAcquire {
    callback: Arc<Callback>,
    request: RefCell<Request>,
}

/// The function of C that is called when a wait has ended.
struct Callback {
    /// Held while the function runs, and while the handle is destroyed.
    lock: Lock,
    /// Whether the function may still be called. Accessed under the lock.
    is_alive: AtomicBool,
    wake: unsafe extern "C" fn(context: *mut c_void),
    context: *mut c_void,
}

// SAFETY: the header says that any thread may call the function with its context.
unsafe impl Send for Callback {}
// SAFETY: the function is called under the lock.
unsafe impl Sync for Callback {}

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        let _guard = self.lock.lock();
        // Relaxed: the lock orders it.
        if self.is_alive.load(Relaxed) {
            // SAFETY: the caller of `thiscpu_shared_budget_acquire_async` passed this function to
            // be called with its context until the handle is destroyed, which takes this lock.
            unsafe { (self.wake)(self.context) };
        }
    }
}

enum Request {
    Waiting(SharedAcquireOwned),
    Granted(SharedOwnedLease),
    Failed(SharedAcquireError),
    Taken,
}

impl ThiscpuSharedAcquire {
    /// Polls the future unless its wait has ended. Returns whether it has ended in this call.
    fn poll(&self) -> bool {
        let mut request = self.request.borrow_mut();
        let Request::Waiting(future) = &mut *request else { return false };
        let waker = Waker::from(Arc::clone(&self.callback));
        *request = match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => return false,
            Poll::Ready(Ok(lease)) => Request::Granted(lease),
            Poll::Ready(Err(error)) => Request::Failed(error),
        };
        true
    }
}

impl Drop for ThiscpuSharedAcquire {
    fn drop(&mut self) {
        let _guard = self.callback.lock.lock();
        // Relaxed: the lock orders it.
        self.callback.is_alive.store(false, Relaxed);
    }
}

/// Requests `n` units without blocking, and stores the handle of the request in `*acquire`.
///
/// `wake` is called with `context` when the units are granted, the budget is closed, or the file
/// was shortened. It may also be called before that; then `take` returns `PENDING`, and `wake` is
/// called again. Usually it runs on a thread that the library starts, with a stack of 256 KiB. It
/// may also run in this call, even before this has stored the handle.
///
/// If the system makes no thread, it also runs in `take`, on the thread of the caller, for any
/// request of the segment. So `wake` must not lock what a caller holds around these two functions.
/// It should only note the event, for example by a write to an eventfd. It must return soon, so it
/// must not throw or call `longjmp`. It must not destroy or take a request.
///
/// - NULL: allowed for `context`, which is only passed on.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`. `OK` does not mean that the units are granted;
///   `thiscpu_shared_acquire_take` tells.
/// - Blocks: never for units.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_budget_acquire_async(
    budget: *mut ThiscpuSharedBudget,
    n: u64,
    wake: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
    acquire: *mut *mut ThiscpuSharedAcquire,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that `acquire` is null or valid for writes, and the handle
        // null or live.
        let (out, budget) = unsafe { (OutParam::new(acquire)?, deref(budget)?) };
        let wake = wake.ok_or(Status::NullPointer)?;
        let memory = UninitHandle::<ThiscpuSharedAcquire>::new()?;
        let (lock, is_alive) = (Lock::new(), AtomicBool::new(true));
        let new = ThiscpuSharedAcquire {
            callback: Arc::new(Callback { lock, is_alive, wake, context }),
            request: RefCell::new(Request::Waiting(budget.budget().acquire_owned(n))),
        };
        if new.poll() {
            Arc::clone(&new.callback).wake();
        }
        out.write(memory.init(new));
        Ok(())
    })
}

/// Stores the lease of a granted request in `*lease`. Never waits for units.
///
/// The request still has to be destroyed, which does not affect the lease.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `PENDING` if the request still waits; `CLOSED` if
///   the budget was closed before it granted the request; `EMPTY` if the lease was taken before; in
///   a child that can take no slot also `NO_SLOT`, and `SYSTEM` with `errno`; `INVALID_SEGMENT` if
///   somebody has shortened the file.
/// - Blocks: never for units.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_acquire_take(
    acquire: *mut ThiscpuSharedAcquire,
    lease: *mut *mut ThiscpuSharedLease,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and that no other thread
        // uses it.
        let handle = unsafe { deref(acquire) }?;
        handle.poll();
        let mut request = handle.request.borrow_mut();
        match std::mem::replace(&mut *request, Request::Taken) {
            Request::Granted(lease) => Ok(ThiscpuSharedLease::new(lease)),
            Request::Taken => Err(Status::Empty),
            Request::Failed(error) => {
                *request = Request::Failed(error.clone());
                Err(error.into())
            }
            waiting @ Request::Waiting(_) => {
                *request = waiting;
                Err(Status::Pending)
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
/// - Blocks: while the callback runs on another thread. Must not be called from a callback.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_acquire_destroy(
    acquire: *mut ThiscpuSharedAcquire,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(acquire) }
}
