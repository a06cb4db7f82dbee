//! Counters, gauges and histograms on [`thiscpu`], for Prometheus and OpenTelemetry.
//!
//! An increment takes about 1 ns on any number of CPUs. A scrape reads exact values, and costs one
//! fence for all of them.
//!
//! - [`Registry`] registers and reads series. Its [`Builder`] sets groups, which are read at one
//!   instant, and buckets.
//! - [`Counter`], [`Gauge`] and [`Histogram`] are handles of series.
//! - [`Family`] finds the series of one metric by labels of a type of the program.
//! - [`Registry::register`] shows structures of the program: counters, budgets, ledgers, caches.
//! - [`Recorder`] is for programs and libraries that use the
//!   [`metrics`](https://docs.rs/metrics) facade.
//! - `Endpoint` (feature `http`, on by default) answers `GET /metrics`, in the [`Format`] that the
//!   client asks for.
//! - `Observer` (feature `opentelemetry`) has observable instruments of a meter.
//! - `Registry::register_malloc` (feature `malloc`) adds series of `thiscpu-malloc`.
//!
//! The [`guide`] says what a scrape guarantees, what things cost, and how to use all of it.
//!
//! ```
//! let registry = thiscpu_metrics::Registry::new();
//! let requests = registry.counter("requests_total", "Requests so far.", &[("method", "get")])?;
//! requests.increment(1);
//! assert!(registry.render().ends_with("requests_total{method=\"get\"} 1\n"));
//! # Ok::<(), thiscpu_metrics::Error>(())
//! ```

// Definitions in the document lead to files of the repository; the first ones count.
/// The guide: guarantees of a scrape, costs, and how to use this crate.
///
/// [benchmarks]: https://github.com/thiscpu/thiscpu/blob/main/docs/benchmarks.md
/// [counters]: https://github.com/thiscpu/thiscpu/blob/main/docs/design/counter.md
/// [Series in C]: https://github.com/thiscpu/thiscpu/blob/main/docs/c.md#series-for-prometheus
/// [axum_server.rs]: https://github.com/thiscpu/thiscpu/blob/main/examples/axum_server.rs
/// [degraded systems]: https://github.com/thiscpu/thiscpu/blob/main/docs/guarantees.md
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/metrics.md")]
pub mod guide {}

mod builder;
mod callbacks;
mod counter;
mod error;
mod exemplar;
mod family;
mod format;
mod gauge;
mod handle;
mod handles;
mod histogram;
#[cfg(feature = "http")]
mod http;
mod label_set;
#[cfg(feature = "malloc")]
mod malloc;
mod media;
mod name;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod page;
#[cfg(feature = "opentelemetry")]
mod points;
mod presence;
mod readers;
mod reading;
mod recorder;
mod register;
mod registry;
mod rejected;
mod removal;
mod row;
mod shown;
mod slots;
mod source;
mod state;
mod structures;
mod table;
mod text;
mod timer;
mod typed_family;
mod unregister;

#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::Observer;
pub use builder::Builder;
#[doc(hidden)]
pub use callbacks::{CallbackTop, CallbackValues};
pub use counter::Counter;
pub use error::{Error, Kind};
pub use gauge::Gauge;
pub use handle::Handle;
pub use histogram::Histogram;
#[cfg(feature = "http")]
pub use http::Endpoint;
pub use label_set::{LabelSet, LabelValues};
pub use media::Format;
pub use recorder::Recorder;
pub use registry::Registry;
pub use shown::Show;
pub use structures::{AccountCounter, Labeled, TopAccounts};
pub use timer::Timer;
pub use typed_family::{Family, FamilyHandle};

/// Parts that other programs of this workspace use: not a stable interface.
#[doc(hidden)]
pub mod __internal {
    #[cfg(feature = "http")]
    pub use crate::http::serve;
    pub use crate::{family::lines, page::Page, shown::Number};
}
