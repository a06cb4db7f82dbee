//! Requests in progress, counted in accounts of a ledger.

use std::fmt;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use thiscpu::Account;
use tower_layer::Layer;
use tower_service::Service;

#[cfg(feature = "http")]
use crate::body::UntilBodyEnd;
use crate::hold::{Hold, UntilResponse};
use crate::response::ResponseFuture;

/// Counts the requests in progress of each tenant, in accounts of a ledger.
///
/// A function finds the account of a request, in a [`Ledger`](thiscpu::Ledger), or `None` if the
/// request is not to be counted. The layer charges 1 to a counter of the account, and uncharges it
/// when the request ends. It limits nothing and returns no error of its own.
///
/// A request keeps a handle of its account, so the account stays open until the request ends.
///
/// ```
/// use std::convert::Infallible;
///
/// use thiscpu::Ledger;
/// use thiscpu_tower::InFlightLayer;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let ledger = Ledger::<1>::new();
/// let acme = ledger.open();
/// let count = InFlightLayer::new(0, {
///     let acme = acme.clone();
///     move |tenant: &&str| (*tenant == "acme").then(|| acme.clone())
/// });
/// let service = async |_tenant: &str| Ok::<_, Infallible>(());
/// let mut service = ServiceBuilder::new().layer(count).service(service_fn(service));
///
/// let response = service.ready().await?.call("acme");
/// assert_eq!(acme.sum(0), 1);
/// response.await?;
/// assert_eq!(acme.sum(0), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InFlightLayer<F, const N: usize, H = UntilResponse> {
    account_of: F,
    index: usize,
    hold: PhantomData<H>,
}

impl<F, const N: usize> InFlightLayer<F, N> {
    /// Creates a layer that counts requests in counter `index` of their accounts.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`.
    pub fn new<R>(index: usize, account_of: F) -> Self
    where
        F: Fn(&R) -> Option<Account<N>>,
    {
        assert!(index < N, "thiscpu-tower: no such counter: use an index below the ledger's N");
        InFlightLayer { account_of, index, hold: PhantomData }
    }
}

impl<F, const N: usize, H> InFlightLayer<F, N, H> {
    /// Counts requests until the bodies of their responses have ended.
    ///
    /// A request whose response fails, or whose future is dropped, ends then.
    #[cfg(feature = "http")]
    pub fn hold_until_body_end(self) -> InFlightLayer<F, N, UntilBodyEnd> {
        let InFlightLayer { account_of, index, .. } = self;
        InFlightLayer { account_of, index, hold: PhantomData }
    }
}

impl<F, const N: usize, H> fmt::Debug for InFlightLayer<F, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightLayer").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<S, F: Clone, const N: usize, H: Clone> Layer<S> for InFlightLayer<F, N, H> {
    type Service = InFlight<S, F, N, H>;

    fn layer(&self, inner: S) -> Self::Service {
        InFlight { inner, layer: self.clone() }
    }
}

/// A service that counts its requests in progress; made by [`InFlightLayer`].
///
/// It is ready when the inner service is, and its errors are those of the inner service.
///
/// # Panics
///
/// `call` panics under the conditions of [`Account::charge`], and if the function that finds the
/// account does. If the inner service panics in `call`, the request is counted no longer.
#[derive(Clone)]
pub struct InFlight<S, F, const N: usize, H = UntilResponse> {
    inner: S,
    layer: InFlightLayer<F, N, H>,
}

/// A guard that counts as one in an account.
pub struct Charged<const N: usize> {
    account: Account<N>,
    index: usize,
}

impl<const N: usize> Charged<N> {
    fn new(account: Account<N>, index: usize) -> Self {
        account.charge(index, 1);
        Charged { account, index }
    }
}

impl<const N: usize> Drop for Charged<N> {
    fn drop(&mut self) {
        self.account.uncharge(self.index, 1);
    }
}

impl<const N: usize> fmt::Debug for Charged<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charged").field("account", &self.account).finish_non_exhaustive()
    }
}

impl<S, F, const N: usize, H, R> Service<R> for InFlight<S, F, N, H>
where
    S: Service<R>,
    F: Fn(&R) -> Option<Account<N>>,
    H: Hold<S::Response, Option<Charged<N>>>,
{
    type Response = H::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, Charged<N>, H>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let InFlightLayer { account_of, index, .. } = &self.layer;
        let charged = account_of(&request).map(|account| Charged::new(account, *index));
        // If this panics, unwinding drops the guard.
        ResponseFuture::new(self.inner.call(request), charged)
    }
}

impl<S, F, const N: usize, H> fmt::Debug for InFlight<S, F, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("layer", &self.layer).finish_non_exhaustive()
    }
}
