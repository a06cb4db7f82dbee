//! Layers for services of tower that limit requests in progress.

pub(crate) use self::{
    designs::{ThisCpu, Tower},
    inner::Inner,
};

mod designs;
mod inner;
#[cfg(test)]
mod tests;

use std::future::poll_fn;

use tower::Service;

family! {
    $ layers: Tower ThisCpu
}

/// Two layers of one crate around [`Inner`].
pub(crate) trait Contender: Sized {
    /// A service that waits while the limit is reached.
    type Waiting: Limited;
    /// A service that refuses requests while the limit is reached.
    type Shedding: Limited;

    /// Makes services that share a limit, as a server clones them for each request.
    fn waiting(limit: usize, inner: Inner) -> Self::Waiting;

    /// Makes services that share a limit, as a server clones them for each request.
    fn shedding(limit: usize, inner: Inner) -> Self::Shedding;
}

/// A service whose clones share a limit.
pub(crate) trait Limited:
    Service<(), Response = (), Error: Send, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> Limited for S where
    S: Service<(), Response = (), Error: Send, Future: Send> + Clone + Send + Sync + 'static
{
}

/// Sends a request to a clone of the service. Returns whether it was served.
pub(crate) async fn request<S: Limited>(service: &S) -> bool {
    let mut service = service.clone();
    match poll_fn(|context| service.poll_ready(context)).await {
        Ok(()) => service.call(()).await.is_ok(),
        Err(_) => false,
    }
}
