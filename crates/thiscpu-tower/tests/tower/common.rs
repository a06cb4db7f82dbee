//! Services that do what a test says, and waits for what other tasks do.

use std::future::{Pending, Ready, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use thiscpu_tower::{BoxError, Overloaded};
use tower::Service;

/// A service whose methods do what its fields say.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    pub(crate) is_pending: bool,
    pub(crate) fails_poll: bool,
    pub(crate) fails_call: bool,
    pub(crate) panics: bool,
}

impl<R> Service<R> for Scripted {
    type Response = ();
    type Error = BoxError;
    type Future = Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.is_pending {
            true => Poll::Pending,
            false => Poll::Ready(result(self.fails_poll)),
        }
    }

    fn call(&mut self, _: R) -> Self::Future {
        assert!(!self.panics, "scripted panic");
        ready(result(self.fails_call))
    }
}

fn result(fails: bool) -> Result<(), BoxError> {
    if fails { Err("scripted failure".into()) } else { Ok(()) }
}

/// Polls a service, with a waker that does nothing.
pub(crate) fn poll_ready<R, S: Service<R>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

pub(crate) fn is_ready<S: Service<(), Error = BoxError>>(service: &mut S) -> bool {
    match poll_ready(service) {
        Poll::Ready(result) => {
            result.unwrap();
            true
        }
        Poll::Pending => false,
    }
}

/// Returns the output of a future that does not wait.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

/// A service whose requests never end.
#[derive(Clone)]
pub(crate) struct Endless;

impl<R> Service<R> for Endless {
    type Response = ();
    type Error = BoxError;
    type Future = Pending<Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        pending()
    }
}

/// Calls an [`Endless`] service below a layer.
///
/// Returns the request in progress, or the error with which it was refused.
pub(crate) fn start<R, S>(service: &mut S, request: R) -> Result<Pin<Box<S::Future>>, BoxError>
where
    S: Service<R, Response = (), Error = BoxError>,
{
    assert!(poll_ready(service).is_ready());
    let mut response = Box::pin(service.call(request));
    match response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Ok(response),
        Poll::Ready(result) => Err(result.unwrap_err()),
    }
}

/// Returns how many units of which limit were available to a request that was refused.
pub(crate) fn refusal<T>(result: Result<T, BoxError>) -> (u64, u64) {
    let error = result.err().expect("the request was admitted");
    let refused = error.downcast_ref::<Overloaded>().expect("the error is `Overloaded`");
    (refused.available, refused.limit)
}

/// Asserts that `f` panics.
pub(crate) fn assert_panics<T>(f: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "no panic");
}

/// A task that counts how often it is woken.
#[derive(Default)]
pub(crate) struct Task(AtomicUsize);

impl Task {
    pub(crate) fn wakes(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Counts entries, and the most that there were at a time.
#[derive(Default)]
pub(crate) struct Peak {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Peak {
    pub(crate) fn enter(self: Arc<Self>) -> Entry {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        Entry(self)
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }
}

/// One entry of a [`Peak`], until it is dropped.
pub(crate) struct Entry(Arc<Peak>);

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, SeqCst);
    }
}

/// Waits until a condition holds, which another task brings about.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    // Long, because other tests use the CPUs too.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
