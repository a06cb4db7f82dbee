//! The futures of the layered services.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::hold::Hold;

pin_project! {
    /// The future of a response, which holds a guard `G` of its request.
    ///
    /// It may be dropped at any time, and drops the guard then.
    pub struct ResponseFuture<F, G, H> {
        // Before the guard: the inner service's future is dropped before units are given back.
        #[pin]
        inner: F,
        guard: Option<G>,
        hold: PhantomData<H>,
    }
}

impl<F, G, H> ResponseFuture<F, G, H> {
    /// Wraps the future of an inner service. No guard: the request was not counted.
    pub(crate) fn new(inner: F, guard: Option<G>) -> Self {
        ResponseFuture { inner, guard, hold: PhantomData }
    }
}

impl<F, R, E, G, H> Future for ResponseFuture<F, G, H>
where
    F: Future<Output = Result<R, E>>,
    H: Hold<R, Option<G>>,
{
    type Output = Result<H::Response, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(context));
        let guard = this.guard.take();
        Poll::Ready(result.map(|response| H::hold(response, guard)))
    }
}

impl<F, G, H> fmt::Debug for ResponseFuture<F, G, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of a response, or the error of a request that was refused.
    ///
    /// It may be dropped at any time, and drops the guard then.
    pub struct LimitedFuture<F, G, H> {
        #[pin]
        state: State<F, G, H>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, G, H> {
        Admitted {
            #[pin]
            response: ResponseFuture<F, G, H>,
        },
        Refused {
            error: Option<BoxError>,
        },
    }
}

impl<F, G, H> LimitedFuture<F, G, H> {
    pub(crate) fn admitted(inner: F, guard: G) -> Self {
        let response = ResponseFuture::new(inner, Some(guard));
        LimitedFuture { state: State::Admitted { response } }
    }

    pub(crate) fn refused(error: BoxError) -> Self {
        LimitedFuture { state: State::Refused { error: Some(error) } }
    }
}

impl<F, R, E, G, H> Future for LimitedFuture<F, G, H>
where
    F: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
    H: Hold<R, Option<G>>,
{
    type Output = Result<H::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Projected::Admitted { response } => response.poll(context).map_err(Into::into),
            Projected::Refused { error } => {
                Poll::Ready(Err(error.take().expect("a future is not polled after its end")))
            }
        }
    }
}

impl<F, G, H> fmt::Debug for LimitedFuture<F, G, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedFuture").finish_non_exhaustive()
    }
}
