//! A limit for each key of requests.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use thiscpu::OwnedLease;
use tower_layer::Layer;
use tower_service::Service;

#[cfg(feature = "http")]
use crate::body::UntilBodyEnd;
use crate::error::{BoxError, refusal};
use crate::hold::{Hold, UntilResponse};
use crate::keyed_budgets::KeyedBudgets;
use crate::response::LimitedFuture;

/// Limits the requests in progress of each key, such as a tenant or a client's address.
///
/// A request of a key whose limit is reached is refused at once: its error is
/// [`Overloaded`](crate::Overloaded). A function finds the key of a request. Requests that have no
/// key can share one, for example `None` of an `Option`.
///
/// All services that this layer and its clones make share the [`KeyedBudgets`].
///
/// ```
/// use std::convert::Infallible;
///
/// use thiscpu_tower::{KeyedLimitLayer, Overloaded};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), thiscpu_tower::BoxError> {
/// let limit = KeyedLimitLayer::new(1, |tenant: &&str| tenant.to_string());
/// let service = async |_tenant: &str| Ok::<_, Infallible>(());
/// let mut service = ServiceBuilder::new().layer(limit.clone()).service(service_fn(service));
///
/// let acme = service.ready().await?.call("acme");
/// let error = service.ready().await?.call("acme").await.unwrap_err();
/// assert!(error.is::<Overloaded>());
/// service.ready().await?.call("other").await?;
/// assert_eq!(limit.budgets().acquired(&"acme".to_owned()), 1);
/// acme.await?;
/// # Ok(())
/// # }
/// ```
pub struct KeyedLimitLayer<K, F, H = UntilResponse> {
    budgets: Arc<KeyedBudgets<K>>,
    key_of: F,
    hold: PhantomData<H>,
}

impl<K: Hash + Eq, F> KeyedLimitLayer<K, F> {
    /// Creates a layer that admits at most `limit` requests of each key at a time.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`Budget::LIMIT_MAX`](thiscpu::Budget::LIMIT_MAX).
    pub fn new<R>(limit: u64, key_of: F) -> Self
    where
        F: Fn(&R) -> K,
    {
        Self::with_budgets(Arc::new(KeyedBudgets::new(limit)), key_of)
    }

    /// Creates a layer that limits requests by `budgets`, which other layers may use as well.
    pub fn with_budgets<R>(budgets: Arc<KeyedBudgets<K>>, key_of: F) -> Self
    where
        F: Fn(&R) -> K,
    {
        KeyedLimitLayer { budgets, key_of, hold: PhantomData }
    }
}

impl<K, F, H> KeyedLimitLayer<K, F, H> {
    /// Makes requests hold their units until the bodies of their responses have ended.
    ///
    /// A request whose response fails, or whose future is dropped, gives its unit back then.
    #[cfg(feature = "http")]
    pub fn hold_until_body_end(self) -> KeyedLimitLayer<K, F, UntilBodyEnd> {
        KeyedLimitLayer { budgets: self.budgets, key_of: self.key_of, hold: PhantomData }
    }

    /// Returns the budgets of the keys.
    pub fn budgets(&self) -> &Arc<KeyedBudgets<K>> {
        &self.budgets
    }
}

impl<K, F: Clone, H> Clone for KeyedLimitLayer<K, F, H> {
    /// Returns a layer that shares the budgets.
    fn clone(&self) -> Self {
        let (budgets, key_of) = (Arc::clone(&self.budgets), self.key_of.clone());
        KeyedLimitLayer { budgets, key_of, hold: PhantomData }
    }
}

impl<K, F, H> fmt::Debug for KeyedLimitLayer<K, F, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimitLayer").field("budgets", &self.budgets).finish_non_exhaustive()
    }
}

impl<S, K, F: Clone, H> Layer<S> for KeyedLimitLayer<K, F, H> {
    type Service = KeyedLimit<S, K, F, H>;

    fn layer(&self, inner: S) -> Self::Service {
        KeyedLimit { inner, layer: self.clone() }
    }
}

/// A service that limits the requests of each key; made by [`KeyedLimitLayer`].
///
/// It is ready when the inner service is.
///
/// # Errors
///
/// The future of a response resolves to [`Overloaded`](crate::Overloaded) if the limit of the key
/// is reached, or to the error of the inner service.
///
/// # Panics
///
/// `call` panics under the conditions of
/// [`Budget::try_acquire`](thiscpu::Budget::try_acquire), and if the function that finds the key
/// does. If the inner service panics in `call`, the unit is given back.
pub struct KeyedLimit<S, K, F, H = UntilResponse> {
    inner: S,
    layer: KeyedLimitLayer<K, F, H>,
}

impl<S, K, F, H, R> Service<R> for KeyedLimit<S, K, F, H>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    K: Hash + Eq,
    F: Fn(&R) -> K,
    H: Hold<S::Response, Option<OwnedLease>>,
{
    type Response = H::Response;
    type Error = BoxError;
    type Future = LimitedFuture<S::Future, OwnedLease, H>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let KeyedLimitLayer { budgets, key_of, .. } = &self.layer;
        match budgets.try_acquire(key_of(&request)) {
            // If this panics, unwinding drops the lease.
            Ok(lease) => LimitedFuture::admitted(self.inner.call(request), lease),
            Err(error) => LimitedFuture::refused(refusal(error, budgets.limit())),
        }
    }
}

impl<S: Clone, K, F: Clone, H> Clone for KeyedLimit<S, K, F, H> {
    /// Returns a service that shares the budgets.
    fn clone(&self) -> Self {
        KeyedLimit { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, K, F, H> fmt::Debug for KeyedLimit<S, K, F, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimit").field("layer", &self.layer).finish_non_exhaustive()
    }
}
