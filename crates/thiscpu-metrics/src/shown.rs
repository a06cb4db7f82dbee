//! Structures of the program that a registry shows, beside its own series.

use thiscpu::Summable;

use crate::{error::Kind, format, name};

/// Something that [`Registry::register`](crate::Registry::register) shows.
///
/// This trait is sealed: other crates cannot implement it. A closure for
/// [`Registry::register_gauge`](crate::Registry::register_gauge) shows any other value.
///
/// `T` is in a static, or in an [`Arc`](std::sync::Arc). Names that end in `_total` are those of
/// counters; others are gauges.
///
/// | type | series of the name `x` |
/// |---|---|
/// | `&'static T` or `Arc<T>` of a `Counter` | `x` |
/// | of `Counters` | `x` with the label `index`, or another by [`Labeled`](crate::Labeled) |
/// | of a `Budget` | gauges `x_limit`, `x_held`, `x_waiters`; counter `x_over_released_total` |
/// | of a `Cache`, `ConstructedCache` or `RawCache` | gauges of its objects and slabs |
/// | [`TopAccounts`](crate::TopAccounts) | `x` of the accounts with the largest values |
/// | [`AccountCounter`](crate::AccountCounter) | `x`: one counter of one account |
pub trait Show: Shown + 'static {}

impl<S: Shown + 'static> Show for S {}

/// The part of [`Show`] that other crates cannot implement.
pub trait Shown: Send + Sync {
    /// Returns the series of a name; with [`has_samples`](Shown::has_samples), one metric.
    #[doc(hidden)]
    fn series(&self, name: &str) -> Vec<Description>;

    /// Returns whether the series differ from scrape to scrape.
    #[doc(hidden)]
    fn has_samples(&self) -> bool {
        false
    }

    /// Returns counters that the scrape sums with all others, and how many there are.
    #[doc(hidden)]
    fn summable(&self) -> Option<(&dyn Summable, usize)> {
        None
    }

    /// Pushes the value of each series, in order, or all samples. `sums` are those of `summable`.
    #[doc(hidden)]
    fn observe(&self, sums: &[i64], out: &mut Observation);
}

/// A series of a structure.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Description {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) help: &'static str,
    pub(crate) labels: Vec<(String, String)>,
}

impl Description {
    pub(crate) fn new(kind: Kind, name: String, help: &'static str) -> Description {
        Description { kind, name, help, labels: Vec::new() }
    }

    /// Returns a counter if the name ends in `_total`, else a gauge.
    pub(crate) fn by_name(name: &str) -> Description {
        let is_counter = name.ends_with(name::TOTAL);
        let kind = if is_counter { Kind::Counter } else { Kind::Gauge };
        Description::new(kind, name::of_kind(kind, name).into_owned(), "")
    }

    pub(crate) fn label(mut self, label: &str, value: String) -> Description {
        self.labels.push((label.to_owned(), value));
        self
    }
}

/// A value of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A value that is not negative.
    Unsigned(u64),
    /// A value of either sign.
    Signed(i64),
    /// A value that need not be an integer.
    Float(f64),
}

impl Number {
    pub(crate) fn push(self, out: &mut String) {
        match self {
            Number::Unsigned(value) => format::push_integer(value, out),
            Number::Signed(value) => format::push_integer(value, out),
            Number::Float(value) => format::push_number(value, out),
        }
    }
}

/// The value of a counter for OpenTelemetry.
#[cfg(feature = "opentelemetry")]
impl From<Number> for u64 {
    fn from(number: Number) -> u64 {
        match number {
            Number::Unsigned(value) => value,
            Number::Signed(value) => value as u64,
            Number::Float(value) => value as u64,
        }
    }
}

/// The value of a gauge for OpenTelemetry.
#[cfg(feature = "opentelemetry")]
impl From<Number> for f64 {
    fn from(number: Number) -> f64 {
        match number {
            Number::Unsigned(value) => value as f64,
            Number::Signed(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

/// The values of a structure in a scrape.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Observation {
    /// One for each series; a series without a value is not shown.
    pub(crate) numbers: Vec<Option<Number>>,
    /// Labels beside those of the registration, as they are written between braces, and a value.
    ///
    /// Only if the series differ from scrape to scrape.
    pub(crate) samples: Vec<(String, Number)>,
}

impl Observation {
    pub(crate) fn push(&mut self, number: Number) {
        self.numbers.push(Some(number));
    }
}
