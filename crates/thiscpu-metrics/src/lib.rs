//! Counters, gauges and histograms on [`thiscpu`].

mod builder;
mod counter;
mod error;
mod gauge;
mod histogram;
#[cfg(feature = "http")]
mod http;
mod name;
mod number;
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
pub use error::{Error, Kind, Named};
pub use gauge::Gauge;
pub use histogram::Histogram;
#[cfg(feature = "http")]
pub use http::Endpoint;
pub use recorder::Recorder;
pub use registry::Registry;
pub use text::CONTENT_TYPE;
