//! Bodies of responses that hold the units of their requests.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::hold::{Hold, Sealed};

/// A request ends when the body of its response has ended, or is dropped.
///
/// A request whose response fails, or whose future is dropped, ends then.
#[derive(Clone, Copy, Debug)]
pub struct UntilBodyEnd;

impl Sealed for UntilBodyEnd {}

impl<B: Body, G> Hold<Response<B>, G> for UntilBodyEnd {
    type Response = Response<HoldingBody<B, G>>;

    fn hold(response: Response<B>, guard: G) -> Self::Response {
        response.map(|body| HoldingBody::new(body, guard))
    }
}

pin_project! {
    /// The body of a response that holds the units of its request until it has ended.
    ///
    /// It ends with its last frame, with an error, or when it is dropped. The last frame is the one
    /// after which the inner body says that it has ended, or else the one after which it has no
    /// more frames.
    pub struct HoldingBody<B, G> {
        // Before the guard: a body is dropped before its units are given back.
        #[pin]
        inner: B,
        guard: Option<G>,
    }
}

impl<B: Body, G> HoldingBody<B, G> {
    fn new(inner: B, guard: G) -> Self {
        let guard = (!inner.is_end_stream()).then_some(guard);
        HoldingBody { inner, guard }
    }
}

impl<B: Body, G> Body for HoldingBody<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(context));
        if !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream() {
            *this.guard = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B, G> fmt::Debug for HoldingBody<B, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldingBody").finish_non_exhaustive()
    }
}
