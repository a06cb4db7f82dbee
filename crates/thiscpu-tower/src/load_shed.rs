//! A limit past which requests are refused at once.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use thiscpu::{Budget, Counter, OwnedLease};
use tower_layer::Layer;
use tower_service::Service;

#[cfg(feature = "http")]
use crate::body::UntilBodyEnd;
use crate::error::{BoxError, refusal};
use crate::hold::{Hold, UntilResponse};
use crate::response::LimitedFuture;

/// The number of units that a request holds: [`OneUnit`], or the result of a function.
///
/// Every `Fn(&R) -> u64` is a cost of requests `R`.
pub trait Cost<R> {
    /// Returns the number of units that the request holds.
    fn units(&self, request: &R) -> u64;
}

/// Each request holds one unit. The default.
#[derive(Clone, Copy, Debug)]
pub struct OneUnit;

impl<R> Cost<R> for OneUnit {
    fn units(&self, _: &R) -> u64 {
        1
    }
}

impl<R, F: Fn(&R) -> u64> Cost<R> for F {
    fn units(&self, request: &R) -> u64 {
        self(request)
    }
}

/// Refuses requests while too few units of a [`Budget`] are available.
///
/// A request acquires its units in `call`, and never waits for them. If it is refused, its error is
/// [`Overloaded`](crate::Overloaded), which has the number of units that were available. A request
/// is refused only if fewer units than it needs were available. Units that are promised to a waiter
/// are not.
///
/// All services that this layer and its clones make share the budget.
///
/// ```
/// use std::convert::Infallible;
///
/// use thiscpu_tower::{LoadShedLayer, Overloaded};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), thiscpu_tower::BoxError> {
/// // At most 1,000 bytes of requests at a time.
/// let limit = LoadShedLayer::new(1000).cost(|request: &Vec<u8>| request.len() as u64);
/// let service = async |request: Vec<u8>| Ok::<_, Infallible>(request.len());
/// let mut service = ServiceBuilder::new().layer(limit.clone()).service(service_fn(service));
///
/// let first = service.ready().await?.call(vec![0; 600]);
/// let error = service.ready().await?.call(vec![0; 600]).await.unwrap_err();
/// let refused = error.downcast_ref::<Overloaded>().expect("it was refused");
/// assert_eq!((refused.available, refused.limit), (400, 1000));
/// assert_eq!(first.await?, 600);
/// assert_eq!(limit.refused().sum(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LoadShedLayer<C = OneUnit, H = UntilResponse> {
    budget: Arc<Budget>,
    refused: Arc<Counter>,
    cost: C,
    hold: PhantomData<H>,
}

impl LoadShedLayer {
    /// Creates a layer with a budget of its own, of `limit` units.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`Budget::LIMIT_MAX`].
    pub fn new(limit: u64) -> Self {
        Self::with_budget(Arc::new(Budget::new(limit)))
    }

    /// Creates a layer that limits requests by `budget`, which others may use as well.
    pub fn with_budget(budget: Arc<Budget>) -> Self {
        let refused = Arc::new(Counter::new());
        LoadShedLayer { budget, refused, cost: OneUnit, hold: PhantomData }
    }
}

impl<C, H> LoadShedLayer<C, H> {
    /// Sets how many units a request holds, such as the bytes of its body.
    ///
    /// A request that costs more than the limit is always refused. A request that costs 0 is
    /// refused only if the budget is closed.
    pub fn cost<R, F: Fn(&R) -> u64>(self, cost: F) -> LoadShedLayer<F, H> {
        LoadShedLayer { budget: self.budget, refused: self.refused, cost, hold: PhantomData }
    }

    /// Makes requests hold their units until the bodies of their responses have ended.
    ///
    /// A request whose response fails, or whose future is dropped, gives its units back then.
    #[cfg(feature = "http")]
    pub fn hold_until_body_end(self) -> LoadShedLayer<C, UntilBodyEnd> {
        let LoadShedLayer { budget, refused, cost, .. } = self;
        LoadShedLayer { budget, refused, cost, hold: PhantomData }
    }

    /// Returns the budget: its limit can be changed, and it can be closed.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Returns the counter of requests that were refused.
    pub fn refused(&self) -> &Arc<Counter> {
        &self.refused
    }
}

impl<C, H> fmt::Debug for LoadShedLayer<C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadShedLayer").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl<S, C: Clone, H: Clone> Layer<S> for LoadShedLayer<C, H> {
    type Service = LoadShed<S, C, H>;

    fn layer(&self, inner: S) -> Self::Service {
        LoadShed { inner, layer: self.clone() }
    }
}

/// A service that refuses requests at a limit; made by [`LoadShedLayer`].
///
/// It is ready when the inner service is.
///
/// # Errors
///
/// The future of a response resolves to [`Overloaded`](crate::Overloaded) if too few units were
/// available, to [`Closed`](crate::Closed) if the budget is closed, or to the error of the inner
/// service.
///
/// # Panics
///
/// `call` panics under the conditions of [`Budget::try_acquire`], and if the cost does. If the
/// inner service panics in `call`, the units are given back.
#[derive(Clone)]
pub struct LoadShed<S, C = OneUnit, H = UntilResponse> {
    inner: S,
    layer: LoadShedLayer<C, H>,
}

impl<S, C, H, R> Service<R> for LoadShed<S, C, H>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    C: Cost<R>,
    H: Hold<S::Response, Option<OwnedLease>>,
{
    type Response = H::Response;
    type Error = BoxError;
    type Future = LimitedFuture<S::Future, OwnedLease, H>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let LoadShedLayer { budget, refused, cost, .. } = &self.layer;
        match budget.try_acquire_owned(cost.units(&request)) {
            // If this panics, unwinding drops the lease.
            Ok(lease) => LimitedFuture::admitted(self.inner.call(request), lease),
            Err(error) => {
                refused.inc();
                LimitedFuture::refused(refusal(error, budget.limit()))
            }
        }
    }
}

impl<S, C, H> fmt::Debug for LoadShed<S, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadShed").field("layer", &self.layer).finish_non_exhaustive()
    }
}
