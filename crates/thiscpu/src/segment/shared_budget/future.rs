//! Futures that acquire units of a shared budget.
//!
//! A future that waits has a waiter in the segment, as a waiting thread has. The thread of
//! `member::tasks` calls its waker, also if another process has granted the units.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::SharedBudget;
use super::error::SharedAcquireError;
use super::lease::{SharedLease, SharedOwnedLease};
use crate::segment::budget::{Participant, Sleeper, Wait, Waiting};
use crate::segment::member::tasks::{Task, TaskWaker};
use crate::sys::errno;

/// The end of a request.
type End = Poll<Result<(), SharedAcquireError>>;

/// A request for units, which may be in the queue of a budget.
struct Request {
    n: u64,
    place: Option<Place>,
}

/// The place of a request that waits.
struct Place {
    /// The number of the task in the table of this process.
    task: u64,
    /// The participant that waits. Another participant, such as a child, has no part in it.
    by: Participant,
    /// `None` if no waiter was free.
    waiting: Option<Waiting>,
}

impl Request {
    fn new(n: u64) -> Request {
        Request { n, place: None }
    }

    /// Returns how the request ended. If it still waits, `waker` is called when that is over.
    fn poll(&mut self, budget: &SharedBudget, waker: &Waker) -> End {
        let _errno = errno::save();
        if self.place.is_none() {
            match budget.try_acquire(self.n) {
                Err(SharedAcquireError::Exhausted { .. }) => {}
                end => return Poll::Ready(end),
            }
        }
        // If the waker panics here, the request is as before this poll.
        let waker = TaskWaker::new(waker);
        let own = budget.participant();
        let (task, waiting) = match self.place.take() {
            Some(place) if Some(place.by) == own => (place.task, place.waiting),
            // The process is another participant now. Others free the waiter of the former
            // participant, or it belongs to the parent.
            Some(place) => (place.task, None),
            None => (budget.member.tasks.number(), None),
        };
        let end = self.step(budget, own, (task, waiting), waker);
        if end.is_ready() {
            self.place = None;
            budget.member.tasks.remove(task);
        }
        end
    }

    fn step(
        &mut self,
        budget: &SharedBudget,
        own: Option<Participant>,
        (task, waiting): (u64, Option<Waiting>),
        waker: TaskWaker,
    ) -> End {
        if budget.member.mapping.is_lost() {
            return Poll::Ready(Err(SharedAcquireError::Lost));
        }
        let by = match own.map_or_else(|| budget.joined(), Ok) {
            Ok(by) => by,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let waiting = match waiting
            .map_or_else(|| budget.enqueue(by, self.n, Sleeper::Task), Wait::Waiting)
        {
            Wait::Granted => return Poll::Ready(Ok(())),
            Wait::Closed => return Poll::Ready(Err(SharedAcquireError::Closed)),
            Wait::Waiting(waiting) => Some(waiting),
            Wait::Left | Wait::Full => None,
        };
        let watched = waiting.as_ref().map(Waiting::watched);
        let place = self.place.insert(Place { task, by, waiting });
        let watched = Task { budget: budget.at, by, place: watched, waker };
        let has_thread = budget.member.watch(task, watched);
        // Only after that, because the wait may have ended before there was a waker.
        let Some(waiting) = place.waiting.take() else { return Poll::Pending };
        let wait = match has_thread {
            true => budget.parts().look(waiting, &*budget.member),
            // Nobody else looks for the dead.
            false => budget.look(by, waiting),
        };
        match wait {
            Wait::Granted => Poll::Ready(Ok(())),
            Wait::Closed => Poll::Ready(Err(SharedAcquireError::Closed)),
            Wait::Waiting(waiting) => {
                place.waiting = Some(waiting);
                Poll::Pending
            }
            // Somebody has damaged the segment, or it was lost. The task is woken within 100 ms,
            // because its wait is over, and its next poll goes on.
            Wait::Left | Wait::Full => Poll::Pending,
        }
    }

    /// Leaves the queue, and releases units that were granted meanwhile.
    fn cancel(&mut self, budget: &SharedBudget) {
        let Some(Place { task, by, waiting }) = self.place.take() else { return };
        let _errno = errno::save();
        if Some(by) == budget.participant()
            && let Some(waiting) = waiting
            && budget.leave_queue(waiting) == Wait::Granted
        {
            budget.release(self.n);
        }
        // Drops the waker, which is code of the program. So it comes last.
        budget.member.tasks.remove(task);
    }
}

/// A future that acquires units; returned by [`SharedBudget::acquire_async`].
///
/// A program may drop the future at any time, and loses nothing: the future leaves the queue, and
/// releases units that were granted to it meanwhile.
#[must_use = "futures do nothing unless they are awaited"]
pub struct SharedAcquire<'a> {
    budget: &'a SharedBudget,
    request: Request,
}

impl<'a> SharedAcquire<'a> {
    fn new(budget: &'a SharedBudget, n: u64) -> SharedAcquire<'a> {
        SharedAcquire { budget, request: Request::new(n) }
    }

    /// Blocks the thread until the units are acquired, like [`SharedBudget::acquire`].
    ///
    /// A future that was polled gives up its place in the queue first.
    ///
    /// # Errors
    ///
    /// As [`SharedBudget::acquire`].
    pub fn wait(mut self) -> Result<SharedLease<'a>, SharedAcquireError> {
        self.request.cancel(self.budget);
        self.budget.acquire(self.request.n).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`SharedBudget::acquire_timeout`].
    pub fn wait_timeout(
        mut self,
        timeout: Duration,
    ) -> Result<SharedLease<'a>, SharedAcquireError> {
        self.request.cancel(self.budget);
        self.budget.acquire_timeout(self.request.n, timeout).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`SharedBudget::acquire_deadline`].
    pub fn wait_deadline(
        mut self,
        deadline: Instant,
    ) -> Result<SharedLease<'a>, SharedAcquireError> {
        self.request.cancel(self.budget);
        self.budget.acquire_deadline(self.request.n, deadline).map(|()| self.lease())
    }

    /// Returns a lease of the units, which were acquired.
    fn lease(&self) -> SharedLease<'a> {
        SharedLease::new(self.budget, self.request.n)
    }
}

impl<'a> Future for SharedAcquire<'a> {
    type Output = Result<SharedLease<'a>, SharedAcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let end = this.request.poll(this.budget, context.waker());
        end.map_ok(|()| this.lease())
    }
}

impl Drop for SharedAcquire<'_> {
    fn drop(&mut self) {
        self.request.cancel(self.budget);
    }
}

impl fmt::Debug for SharedAcquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedAcquire").field("n", &self.request.n).finish_non_exhaustive()
    }
}

/// A future that acquires units; returned by [`SharedBudget::acquire_owned`].
///
/// Like [`SharedAcquire`], but it owns a handle of the budget, so it is `'static`.
#[must_use = "futures do nothing unless they are awaited"]
pub struct SharedAcquireOwned {
    budget: SharedBudget,
    request: Request,
}

impl SharedAcquireOwned {
    fn new(budget: SharedBudget, n: u64) -> SharedAcquireOwned {
        SharedAcquireOwned { budget, request: Request::new(n) }
    }

    /// Blocks the thread until the units are acquired, like [`SharedBudget::acquire`].
    ///
    /// A future that was polled gives up its place in the queue first.
    ///
    /// # Errors
    ///
    /// As [`SharedBudget::acquire`].
    pub fn wait(mut self) -> Result<SharedOwnedLease, SharedAcquireError> {
        self.request.cancel(&self.budget);
        self.budget.acquire(self.request.n).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`SharedBudget::acquire_timeout`].
    pub fn wait_timeout(
        mut self,
        timeout: Duration,
    ) -> Result<SharedOwnedLease, SharedAcquireError> {
        self.request.cancel(&self.budget);
        self.budget.acquire_timeout(self.request.n, timeout).map(|()| self.lease())
    }

    /// Blocks the thread until the units are acquired, until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`SharedBudget::acquire_deadline`].
    pub fn wait_deadline(
        mut self,
        deadline: Instant,
    ) -> Result<SharedOwnedLease, SharedAcquireError> {
        self.request.cancel(&self.budget);
        self.budget.acquire_deadline(self.request.n, deadline).map(|()| self.lease())
    }

    /// Returns a lease of the units, which were acquired.
    fn lease(&self) -> SharedOwnedLease {
        SharedOwnedLease::new(self.budget.clone(), self.request.n)
    }
}

impl Future for SharedAcquireOwned {
    type Output = Result<SharedOwnedLease, SharedAcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let end = this.request.poll(&this.budget, context.waker());
        end.map_ok(|()| this.lease())
    }
}

impl Drop for SharedAcquireOwned {
    fn drop(&mut self) {
        self.request.cancel(&self.budget);
    }
}

impl fmt::Debug for SharedAcquireOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedAcquireOwned").field("n", &self.request.n).finish_non_exhaustive()
    }
}

impl SharedBudget {
    /// Acquires `n` units as a future, for any executor.
    ///
    /// Resolves to a [`SharedLease`]. The future joins the queue of
    /// [`acquire`](SharedBudget::acquire) when first polled, and leaves it when dropped. Then it
    /// also releases units that were granted to it meanwhile. If it is polled again after it has
    /// resolved, it acquires again. A poll never waits for units.
    ///
    /// **A thread.** While tasks wait, the process has a thread named `thiscpu-tasks` for each
    /// attached segment. The thread calls the wakers, also if another process grants the units, and
    /// looks for dead processes every 100 ms. It ends within 100 ms of the last wait. It blocks all
    /// signals except those of its own faults, and its stack has 256 KiB. If the system makes no
    /// thread, each poll wakes all tasks of the segment, and looks for dead processes. That works
    /// but keeps a CPU busy.
    ///
    /// **Wakers.** A waker that panics when it is called or dropped harms no other task, and nobody
    /// learns of the panic. If it panics when it is cloned, the poll panics. No panic loses a unit.
    ///
    /// **Waiters.** If all waiters of the segment are in use, the future tries again every 100 ms;
    /// see [`acquire`](SharedBudget::acquire).
    ///
    /// **Fork.** A child has no part in its parent's waits. A future of the parent joins the queue
    /// again if the child polls it, and does nothing if the child drops it. The future must not be
    /// polled in a child of `vfork` or in a signal handler.
    ///
    /// # Errors
    ///
    /// The future resolves to the errors of [`acquire`](SharedBudget::acquire).
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// use thiscpu::{SharedAcquireError, SharedBudget};
    ///
    /// async fn with_a_connection(connections: &SharedBudget) -> Result<u64, SharedAcquireError> {
    ///     let lease = connections.acquire_async(1).await?;
    ///     Ok(lease.units())
    /// }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = thiscpu::Segment::anonymous()?;
    /// # let budget = segment.budget("connections", 1)?;
    /// # let poll = pin!(with_a_connection(&budget)).poll(&mut Context::from_waker(Waker::noop()));
    /// # assert_eq!(poll, Poll::Ready(Ok(1)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_async(&self, n: u64) -> SharedAcquire<'_> {
        SharedAcquire::new(self, n)
    }

    /// Acquires `n` units as a future, for any executor. Resolves to a [`SharedOwnedLease`].
    ///
    /// Like [`acquire_async`](SharedBudget::acquire_async), but the future and the lease own
    /// handles of this budget, so both are `'static`. For a deadline in async code, use the timer
    /// of your executor: dropping the future loses nothing. Threads call
    /// [`wait_deadline`](SharedAcquireOwned::wait_deadline).
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// use thiscpu::{SharedAcquireError, SharedBudget, SharedOwnedLease};
    ///
    /// async fn with_memory(memory: SharedBudget) -> Result<SharedOwnedLease, SharedAcquireError> {
    ///     memory.acquire_owned(70).await
    /// }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = thiscpu::Segment::anonymous()?;
    /// # let memory = segment.budget("memory", 100)?;
    /// # let mut context = Context::from_waker(Waker::noop());
    /// # let Poll::Ready(lease) = pin!(with_memory(memory.clone())).poll(&mut context) else {
    /// #     panic!("units are available")
    /// # };
    /// # assert_eq!(lease?.units(), 70);
    /// # assert_eq!(memory.acquired(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_owned(&self, n: u64) -> SharedAcquireOwned {
        SharedAcquireOwned::new(self.clone(), n)
    }
}
