//! Requests of tasks, which wait in the queue and sleep on timers of their executor.

use std::future::{Future, poll_fn};
use std::marker::PhantomPinned;
use std::pin::{Pin, pin};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::core::Rate;
use super::error::RateError;
use super::wait::Turn;
use crate::budget::queue::{State, Waiter};
use crate::sys::waker;

/// A request for units, which may be in the queue of a rate. Its drop leaves the queue.
struct Request<'a> {
    rate: &'a Rate,
    waiter: Waiter,
    /// Whether the waiter was queued, and its end was not handed out yet.
    is_queued: bool,
    _pinned: PhantomPinned,
}

// SAFETY: once the waiter is queued, its links and waker are accessed under the rate's lock, and
// its state is atomic. Before that, only the owner of the request accesses it.
unsafe impl Send for Request<'_> {}
// SAFETY: a shared reference to a request gives access to nothing: all methods need `&mut`.
unsafe impl Sync for Request<'_> {}

impl Request<'_> {
    /// Acquires the units, or waits for them; returns for how long to sleep.
    fn turn(self: Pin<&mut Self>, task: &Waker) -> Result<Turn, RateError> {
        // SAFETY: nothing is moved out of the request.
        let this = unsafe { self.get_unchecked_mut() };
        let task = Some(task.clone());
        let turn = match this.is_queued && this.waiter.is_of_this_process() {
            true => this.rate.serve(&this.waiter, task),
            // SAFETY: the waiter is in no queue of this process. The request is pinned, and its
            // drop takes the waiter out of the queue.
            false => unsafe { this.rate.enqueue(&this.waiter, task) },
        };
        this.is_queued = matches!(turn, Ok(Some(_)));
        turn
    }

    /// Returns whether the waiter was nudged or its wait has ended. If not, `task` is woken then.
    fn has_news(&self, task: &Waker) -> bool {
        if !self.waiter.is_of_this_process() {
            return true;
        }
        let task = Some(task.clone());
        let guard = self.rate.lock();
        // SAFETY: the rate's lock is held.
        let old = unsafe { self.waiter.replace_task(task) };
        // After the new waker is there: a later nudge calls it.
        let has_news = self.waiter.state() != State::Waiting;
        drop(guard);
        waker::drop_caught(old);
        has_news
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.is_queued && self.rate.leave_queue(&self.waiter).is_ok() {
            self.rate.give_back(self.waiter.units as u64);
        }
    }
}

impl Rate {
    /// Acquires `n` units; waits in the queue with timers that `sleep` makes.
    pub(super) async fn wait_async<S: Future<Output = ()>>(
        &self,
        n: u64,
        mut sleep: impl FnMut(Duration) -> S,
    ) -> Result<(), RateError> {
        match self.try_acquire(n) {
            Err(RateError::Exceeded { .. }) => {}
            result => return result,
        }
        let waiter = Waiter::new(n as i64);
        let mut request =
            pin!(Request { rate: self, waiter, is_queued: false, _pinned: PhantomPinned });
        let mut turn =
            poll_fn(|context| Poll::Ready(request.as_mut().turn(context.waker()))).await?;
        while let Some(delay) = turn {
            let mut timer = pin!(sleep(delay));
            turn = poll_fn(|context| {
                let is_over = timer.as_mut().poll(context).is_ready();
                if is_over || request.as_ref().has_news(context.waker()) {
                    return Poll::Ready(request.as_mut().turn(context.waker()));
                }
                Poll::Pending
            })
            .await?;
        }
        Ok(())
    }
}
