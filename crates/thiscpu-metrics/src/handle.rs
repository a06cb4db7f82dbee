//! What handles of all kinds have in common.

use crate::{
    counter::Counter, error::Kind, family::Instrument, gauge::Gauge, histogram::Histogram,
};

/// A handle of a series: [`Counter`], [`Gauge`] or [`Histogram`].
///
/// This trait is sealed: other crates cannot implement it.
pub trait Handle: Identity {}

impl<H: Identity> Handle for H {}

/// The part of [`Handle`] that other crates cannot implement.
pub trait Identity: Sized {
    /// The kind of the metric.
    #[doc(hidden)]
    const KIND: Kind;

    /// Returns the number of the series.
    #[doc(hidden)]
    fn id(&self) -> u64;

    /// Returns the handle of an instrument of this kind.
    #[doc(hidden)]
    fn of(opaque: Opaque) -> Option<Self>;
}

/// An instrument, which other crates cannot name.
#[doc(hidden)]
#[derive(Debug)]
pub struct Opaque(pub(crate) Instrument);

impl Identity for Counter {
    const KIND: Kind = Kind::Counter;

    fn id(&self) -> u64 {
        Counter::id(self)
    }

    fn of(opaque: Opaque) -> Option<Counter> {
        if let Instrument::Counter(counter) = opaque.0 { Some(counter) } else { None }
    }
}

impl Identity for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn id(&self) -> u64 {
        self.0.id
    }

    fn of(opaque: Opaque) -> Option<Gauge> {
        if let Instrument::Gauge(gauge) = opaque.0 { Some(gauge) } else { None }
    }
}

impl Identity for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn id(&self) -> u64 {
        self.0.id
    }

    fn of(opaque: Opaque) -> Option<Histogram> {
        if let Instrument::Histogram(histogram) = opaque.0 { Some(histogram) } else { None }
    }
}
