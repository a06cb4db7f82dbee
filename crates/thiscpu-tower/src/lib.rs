//! Limits for [tower](https://docs.rs/tower) services, on the budgets and ledgers of [`thiscpu`].
//!
//! - [`ConcurrencyLimitLayer`]: at most so many requests at a time; others wait.
//! - [`LoadShedLayer`]: at most so many requests, or units, at a time; others are refused.
//! - [`KeyedLimitLayer`]: at most so many requests at a time for each key; others are refused.
//! - [`InFlightLayer`]: counts requests in progress in accounts of a ledger, one for each tenant.
//!
//! A limit is never exceeded. A request that is canceled, fails or panics gives its units back. All
//! services that a layer and its clones make share one limit.
//!
//! Features: `http` holds units until the body of a response has ended. `metrics` shows limits in a
//! registry of `thiscpu-metrics`. The [`guide`] shows a server with all of it.

// Definitions in the document lead to files of the repository; the first ones count.
/// The guide: which layer to use, where to put it, and what it costs.
///
/// [benchmarks]: https://github.com/thiscpu/thiscpu/blob/main/docs/benchmarks.md
/// [fast]: https://github.com/thiscpu/thiscpu/blob/main/docs/guide.md#when-a-budget-is-fast
/// [metrics]: https://github.com/thiscpu/thiscpu/blob/main/docs/metrics.md
/// [processes]: https://github.com/thiscpu/thiscpu/blob/main/docs/guide.md#several-processes
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/tower.md")]
pub mod guide {}

#[cfg(feature = "http")]
mod body;
mod concurrency_limit;
mod error;
mod hold;
mod in_flight;
mod keyed_budgets;
mod keyed_limit;
mod load_shed;
#[cfg(feature = "metrics")]
mod metrics;
mod response;

#[cfg(feature = "http")]
pub use body::{HoldingBody, UntilBodyEnd};
pub use concurrency_limit::{ConcurrencyLimit, ConcurrencyLimitLayer};
pub use error::{BoxError, Closed, Overloaded};
pub use hold::{Hold, UntilResponse};
pub use in_flight::{Charged, InFlight, InFlightLayer};
pub use keyed_budgets::KeyedBudgets;
pub use keyed_limit::{KeyedLimit, KeyedLimitLayer};
pub use load_shed::{Cost, LoadShed, LoadShedLayer, OneUnit};
pub use response::{LimitedFuture, ResponseFuture};
