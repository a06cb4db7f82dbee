//! Counters, gauges and histograms on [`thiscpu`]: increments that cost about a nanosecond on any number of CPUs, and scrapes for
//! Prometheus and OpenTelemetry whose values are exact, all for one fence.
//!
//! - [`Registry`]: where series are registered and read; [`Builder`]: groups, which are read at one instant, and buckets.
//! - [`Counter`], [`Gauge`], [`Histogram`]: handles.
//! - [`Recorder`]: the same for programs and libraries that use the [`metrics`] facade.
//! - `Endpoint` (feature `http`, which is on unless switched off): answers `GET /metrics`.
//! - `Observer` (feature `opentelemetry`): observable instruments of a meter.
//!
//! ```
//! let registry = thiscpu_metrics::Registry::new();
//! let requests = registry.counter("requests_total", "Requests so far.", &[("method", "get")])?;
//! requests.increment(1);
//! assert!(registry.render().ends_with("requests_total{method=\"get\"} 1\n"));
//! # Ok::<(), thiscpu_metrics::Error>(())
//! ```

/// What a scrape promises, what things cost, and how to use all of it.
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/metrics.md")]
pub mod guide {}

mod builder;
mod counter;
mod error;
mod format;
mod gauge;
mod histogram;
#[cfg(feature = "http")]
mod http;
mod name;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod recorder;
mod registry;
mod rejected;
mod row;
mod state;
mod text;

#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::Observer;
pub use builder::Builder;
pub use counter::Counter;
pub use error::{Error, Kind};
pub use gauge::Gauge;
pub use histogram::Histogram;
#[cfg(feature = "http")]
pub use http::Endpoint;
pub use recorder::Recorder;
pub use registry::Registry;
pub use text::CONTENT_TYPE;
