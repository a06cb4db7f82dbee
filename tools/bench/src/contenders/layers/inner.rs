//! The service below all layers.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tower::Service;

/// A service whose requests end when they are polled for the first or the second time.
#[derive(Clone, Copy)]
pub(crate) struct Inner {
    /// Whether a request lets other tasks run before it ends, so that requests overlap.
    pub(crate) yields: bool,
}

/// A request in progress.
pub(crate) struct Response {
    yields: bool,
}

impl Service<()> for Inner {
    type Response = ();
    type Error = Infallible;
    type Future = Response;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Response {
        Response { yields: self.yields }
    }
}

impl Future for Response {
    type Output = Result<(), Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}
