//! The crates.

use ::tower::{Layer as _, limit::ConcurrencyLimit, load_shed::LoadShed};
use thiscpu_tower::{ConcurrencyLimitLayer, LoadShedLayer};

use super::{Contender, Inner};

/// The tower crate: a semaphore, and a service that refuses requests if that is not ready.
pub(crate) struct Tower;

impl Contender for Tower {
    type Waiting = ConcurrencyLimit<Inner>;
    type Shedding = LoadShed<ConcurrencyLimit<Inner>>;

    fn waiting(limit: usize, inner: Inner) -> Self::Waiting {
        ConcurrencyLimit::new(inner, limit)
    }

    fn shedding(limit: usize, inner: Inner) -> Self::Shedding {
        LoadShed::new(ConcurrencyLimit::new(inner, limit))
    }
}

/// `thiscpu-tower`.
pub(crate) struct ThisCpu;

impl Contender for ThisCpu {
    type Waiting = thiscpu_tower::ConcurrencyLimit<Inner>;
    type Shedding = thiscpu_tower::LoadShed<Inner>;

    fn waiting(limit: usize, inner: Inner) -> Self::Waiting {
        ConcurrencyLimitLayer::new(limit as u64).layer(inner)
    }

    fn shedding(limit: usize, inner: Inner) -> Self::Shedding {
        LoadShedLayer::new(limit as u64).layer(inner)
    }
}
