//! Futures that acquire units.

use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::core::Budget;
use super::error::{AcquireError, TryAcquireError};
use super::lease::Lease;
use super::owned::OwnedLease;
use super::queue::{State, Waiter};
use super::wait::waiter_for;

/// A request for units, which may be in the queue of a budget.
///
/// The owner of a request pins it, polls it with one budget only, and cancels it before it is gone.
struct Request {
    n: u64,
    waiter: Waiter,
    /// Whether the waiter was queued, and its end was not handed out yet.
    is_queued: bool,
    _pinned: PhantomPinned,
}

// SAFETY: once the waiter is queued, its links and waker are accessed under the budget's lock, and
// its state is atomic. Before that, only the owner of the request accesses it.
unsafe impl Send for Request {}
// SAFETY: a shared reference to a request gives access to nothing: all methods need `&mut`.
unsafe impl Sync for Request {}

impl Request {
    fn new(n: u64) -> Request {
        Request { n, waiter: waiter_for(n), is_queued: false, _pinned: PhantomPinned }
    }

    /// Returns how the request ended; if it did not, `task` is woken when it does.
    ///
    /// # Safety
    ///
    /// The request stays where it is until it was canceled. All polls are of the same budget.
    unsafe fn poll(&mut self, budget: &Budget, task: &Waker) -> Poll<Result<(), AcquireError>> {
        let end = match self.is_queued {
            true => self.poll_queue(budget, task),
            false => None,
        };
        // SAFETY: the caller guarantees that the request stays where it is until it was canceled.
        let end = end.unwrap_or_else(|| unsafe { self.enter_queue(budget, task) });
        self.is_queued = end.is_pending();
        end
    }

    /// Looks at the queued waiter. Returns `None` if a fork removed it from the queue.
    fn poll_queue(&self, budget: &Budget, task: &Waker) -> Option<Poll<Result<(), AcquireError>>> {
        let mut state = self.waiter.state();
        if state == State::Waiting {
            if !self.waiter.is_of_this_process() {
                return None;
            }
            let task = Some(task.clone());
            let guard = budget.lock();
            state = self.waiter.state();
            // SAFETY: the budget's lock is held.
            let old = unsafe { self.waiter.replace_task(task) };
            budget.unlock(guard);
            // Dropping a waker may run a task's own code, so it happens without the lock.
            drop(old);
        }
        Some(match state {
            State::Waiting | State::Nudged => Poll::Pending,
            State::Granted => Poll::Ready(Ok(())),
            State::Closed => Poll::Ready(Err(AcquireError(()))),
        })
    }

    /// Acquires the units, or joins the queue.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue of this process. It stays where it is until it was canceled.
    unsafe fn enter_queue(&self, budget: &Budget, task: &Waker) -> Poll<Result<(), AcquireError>> {
        match budget.try_acquire(self.n) {
            Ok(()) => return Poll::Ready(Ok(())),
            Err(TryAcquireError::Closed) => return Poll::Ready(Err(AcquireError(()))),
            Err(TryAcquireError::Exhausted { .. }) => {}
        }
        // SAFETY: the caller's contract.
        match unsafe { budget.enqueue(&self.waiter, Some(task.clone())) } {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(closed) => Poll::Ready(Err(closed)),
        }
    }

    /// Leaves the queue, and releases units that were granted meanwhile.
    fn cancel(&mut self, budget: &Budget) {
        if std::mem::take(&mut self.is_queued) && budget.leave_queue(&self.waiter).is_ok() {
            budget.release(self.n);
        }
    }
}

/// A future that acquires units; returned by [`Budget::acquire_async`].
///
/// It may be dropped at any time, and loses nothing then: it leaves the queue, and units that were
/// granted to it meanwhile go to the next waiter.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<'a> {
    budget: &'a Budget,
    request: Request,
}

impl<'a> Acquire<'a> {
    pub(super) fn new(budget: &'a Budget, n: u64) -> Acquire<'a> {
        Acquire { budget, request: Request::new(n) }
    }

    /// Blocks the thread until the units are acquired, like [`Budget::acquire`].
    ///
    /// # Errors
    ///
    /// [`AcquireError`] if the budget is closed.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Budget::try_acquire`].
    pub fn wait(self) -> Result<Lease<'a>, AcquireError> {
        self.budget.acquire(self.request.n).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Budget::acquire_timeout`].
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Budget::try_acquire`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Lease<'a>, TryAcquireError> {
        self.budget.acquire_timeout(self.request.n, timeout).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Budget::acquire_deadline`].
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Budget::try_acquire`].
    pub fn wait_deadline(self, deadline: Instant) -> Result<Lease<'a>, TryAcquireError> {
        self.budget.acquire_deadline(self.request.n, deadline).map(|()| self.lease())
    }

    /// Returns a lease of the units, which were acquired.
    fn lease(&self) -> Lease<'a> {
        Lease::new(self.budget, self.request.n)
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<Lease<'a>, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved out of the future here, or by its other methods once it was
        // pinned: they take it by value.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the request is pinned with the future, whose drop cancels it.
        let end = unsafe { this.request.poll(this.budget, context.waker()) };
        end.map_ok(|()| this.lease())
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        self.request.cancel(self.budget);
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("n", &self.request.n).finish_non_exhaustive()
    }
}

/// A future that acquires units of a shared budget; returned by [`Budget::acquire_owned`].
///
/// Like [`Acquire`], but it owns a reference to the budget, so it is `'static`.
#[must_use = "futures do nothing unless they are awaited"]
pub struct AcquireOwned {
    budget: Arc<Budget>,
    request: Request,
}

impl AcquireOwned {
    pub(super) fn new(budget: Arc<Budget>, n: u64) -> AcquireOwned {
        AcquireOwned { budget, request: Request::new(n) }
    }

    /// Blocks the thread until the units are acquired, like [`Budget::acquire`].
    ///
    /// # Errors
    ///
    /// [`AcquireError`] if the budget is closed.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Budget::try_acquire`].
    pub fn wait(self) -> Result<OwnedLease, AcquireError> {
        self.budget.acquire(self.request.n).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Budget::acquire_timeout`].
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Budget::try_acquire`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<OwnedLease, TryAcquireError> {
        self.budget.acquire_timeout(self.request.n, timeout).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Budget::acquire_deadline`].
    ///
    /// # Panics
    ///
    /// Under the conditions of [`Budget::try_acquire`].
    pub fn wait_deadline(self, deadline: Instant) -> Result<OwnedLease, TryAcquireError> {
        self.budget.acquire_deadline(self.request.n, deadline).map(|()| self.lease())
    }

    /// Returns a lease of the units, which were acquired.
    fn lease(&self) -> OwnedLease {
        OwnedLease::new(Arc::clone(&self.budget), self.request.n)
    }
}

impl Future for AcquireOwned {
    type Output = Result<OwnedLease, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved out of the future here, or by its other methods once it was
        // pinned: they take it by value.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the request is pinned with the future, whose drop cancels it.
        let end = unsafe { this.request.poll(&this.budget, context.waker()) };
        end.map_ok(|()| this.lease())
    }
}

impl Drop for AcquireOwned {
    fn drop(&mut self) {
        self.request.cancel(&self.budget);
    }
}

impl fmt::Debug for AcquireOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireOwned").field("n", &self.request.n).finish_non_exhaustive()
    }
}
