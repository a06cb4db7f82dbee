//! A limit on requests in progress, for which services wait.

use std::fmt;
use std::future::Future as _;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thiscpu::{AcquireOwned, Budget, OwnedLease, TryAcquireError};
use tower_layer::Layer;
use tower_service::Service;

#[cfg(feature = "http")]
use crate::body::UntilBodyEnd;
use crate::error::{BoxError, Closed};
use crate::hold::{Hold, UntilResponse};
use crate::response::LimitedFuture;

/// Limits the requests in progress; a service is not ready while the limit is reached.
///
/// Each request holds one unit of a [`Budget`]. All services that this layer and its clones make
/// share that budget. So one layer limits a whole server, even if a framework makes a service for
/// each route or connection.
///
/// A service acquires its unit in `poll_ready`, first come, first served. It holds the unit until
/// the future of the response ends or is dropped. With the feature `http` it can also hold the unit
/// until the body of the response has ended.
///
/// The [guide](crate::guide) says in which order to nest layers.
///
/// ```
/// use std::convert::Infallible;
///
/// use thiscpu_tower::ConcurrencyLimitLayer;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), thiscpu_tower::BoxError> {
/// let limit = ConcurrencyLimitLayer::new(100);
/// let inner = service_fn(async |request: u32| Ok::<_, Infallible>(request + 1));
/// let mut service = ServiceBuilder::new().layer(limit.clone()).service(inner);
///
/// let response = service.ready().await?.call(1);
/// assert_eq!(limit.budget().acquired(), 1);
/// assert_eq!(response.await?, 2);
/// assert_eq!(limit.budget().acquired(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimitLayer<H = UntilResponse> {
    budget: Arc<Budget>,
    hold: PhantomData<H>,
}

impl ConcurrencyLimitLayer {
    /// Creates a layer with a budget of its own, which admits at most `limit` requests at a time.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`Budget::LIMIT_MAX`].
    pub fn new(limit: u64) -> Self {
        Self::with_budget(Arc::new(Budget::new(limit)))
    }

    /// Creates a layer that limits requests by `budget`, which others may use as well.
    pub fn with_budget(budget: Arc<Budget>) -> Self {
        ConcurrencyLimitLayer { budget, hold: PhantomData }
    }

    /// Makes requests hold their units until the bodies of their responses have ended.
    ///
    /// A request whose response fails, or whose future is dropped, gives its unit back then.
    #[cfg(feature = "http")]
    pub fn hold_until_body_end(self) -> ConcurrencyLimitLayer<UntilBodyEnd> {
        ConcurrencyLimitLayer { budget: self.budget, hold: PhantomData }
    }
}

impl<H> ConcurrencyLimitLayer<H> {
    /// Returns the budget: its limit can be changed, and it can be closed.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }
}

impl<S, H> Layer<S> for ConcurrencyLimitLayer<H> {
    type Service = ConcurrencyLimit<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        let budget = Arc::clone(&self.budget);
        ConcurrencyLimit { inner, unit: Unit::None, budget, hold: PhantomData }
    }
}

/// A service that limits the requests in progress; made by [`ConcurrencyLimitLayer`].
///
/// A ready service holds a unit until it is called or dropped. A service that waits keeps its place
/// in the queue, so it must be polled again or dropped. A clone holds no unit and does not wait.
///
/// # Errors
///
/// [`Closed`] from `poll_ready` if the budget is closed, and the errors of the inner service. An
/// error of the inner service's `poll_ready` gives the unit back.
///
/// # Panics
///
/// `call` panics if the service is not ready. All methods panic under the conditions of
/// [`Budget::try_acquire`]. If the inner service panics in `call`, the unit is given back.
pub struct ConcurrencyLimit<S, H = UntilResponse> {
    inner: S,
    unit: Unit,
    budget: Arc<Budget>,
    hold: PhantomData<H>,
}

/// The unit for the next request.
enum Unit {
    None,
    Waiting(Pin<Box<AcquireOwned>>),
    Held(OwnedLease),
}

impl<S, H> ConcurrencyLimit<S, H> {
    /// Acquires the unit for the next request, unless the service has it already.
    fn poll_unit(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        if let Unit::None = self.unit {
            self.unit = match self.budget.try_acquire_owned(1) {
                Ok(lease) => Unit::Held(lease),
                Err(TryAcquireError::Closed) => return Poll::Ready(Err(Closed)),
                // A wait is rare, so only a wait pays for an allocation.
                Err(TryAcquireError::Exhausted { .. }) => {
                    Unit::Waiting(Box::pin(self.budget.acquire_owned(1)))
                }
            };
        }
        if let Unit::Waiting(acquire) = &mut self.unit {
            let acquired = ready!(acquire.as_mut().poll(context));
            self.unit = acquired.map_or(Unit::None, Unit::Held);
            if let Unit::None = self.unit {
                return Poll::Ready(Err(Closed));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S, H, R> Service<R> for ConcurrencyLimit<S, H>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    H: Hold<S::Response, Option<OwnedLease>>,
{
    type Response = H::Response;
    type Error = BoxError;
    type Future = LimitedFuture<S::Future, OwnedLease, H>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        ready!(self.poll_unit(context))?;
        let ready = ready!(self.inner.poll_ready(context));
        Poll::Ready(ready.map_err(|error| {
            self.unit = Unit::None;
            error.into()
        }))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Unit::Held(lease) = std::mem::replace(&mut self.unit, Unit::None) else {
            panic!("thiscpu-tower: call refused: the service is not ready; poll `poll_ready` first")
        };
        // If this panics, unwinding drops the lease.
        LimitedFuture::admitted(self.inner.call(request), lease)
    }
}

impl<S: Clone, H> Clone for ConcurrencyLimit<S, H> {
    /// Returns a service that shares the budget. It holds no unit, even if this service is ready.
    fn clone(&self) -> Self {
        let (inner, budget) = (self.inner.clone(), Arc::clone(&self.budget));
        ConcurrencyLimit { inner, unit: Unit::None, budget, hold: PhantomData }
    }
}

impl<S, H> fmt::Debug for ConcurrencyLimit<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit").field("budget", &self.budget).finish_non_exhaustive()
    }
}
