//! The registry, which registers and reads series.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiscpu::{Summable, sum_all};

use crate::{
    builder::{Builder, Settings},
    counter::Counter,
    error::{Error, Kind},
    gauge::{CurrentScrape, Gauge},
    histogram::Histogram,
    name::Labels,
    state::{Instrument, Reading, Request, Source, State},
    text,
};

/// A set of series that are registered and read together.
///
/// A registry is cheap to clone; all clones are the same registry. A series lives as long as its
/// registry.
///
/// Registration takes the registry's lock, which a scrape holds from its start to its end. Handles
/// do not need the lock, so a scrape never delays them.
///
/// No method may be called from a signal handler. In a child of `fork` all may be called, unless
/// another thread of the parent was registering or scraping at the time: the child would wait
/// forever. Each handle's documentation says where it may be used.
///
/// ```
/// let registry = thiscpu_metrics::Registry::new();
/// let requests = registry.counter("requests_total", "Requests so far.", &[])?;
/// requests.increment(1);
/// assert_eq!(
///     registry.render(),
///     "# HELP requests_total Requests so far.\n\
///      ## TYPE requests_total counter\n\
///      requests_total 1\n"
/// );
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    state: Mutex<State>,
    current_scrape: Arc<CurrentScrape>,
}

impl Registry {
    /// Creates a registry without groups, with Prometheus' default buckets.
    #[must_use]
    pub fn new() -> Registry {
        Registry::with(Settings::by_default())
    }

    /// Returns a builder, for a registry with groups or other buckets.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn with(settings: Settings) -> Registry {
        let (state, current_scrape) = (Mutex::default(), Arc::default());
        Registry { shared: Arc::new(Shared { settings, state, current_scrape }) }
    }

    /// Registers a counter.
    ///
    /// By convention its name ends in `_total`; no suffix is added. A label with an empty value
    /// does not exist, as for Prometheus. The first help text that is not empty is that of all
    /// series of the name. Waits for a current scrape.
    ///
    /// # Errors
    ///
    /// If a name or label is invalid or reserved (`le`, `__*`), if the series exists, or if the
    /// name has another kind or help text.
    pub fn counter(&self, name: &str, help: &str, labels: Labels<'_>) -> Result<Counter, Error> {
        match self.register(Kind::Counter, name, help, labels)? {
            Instrument::Counter(counter) => Ok(counter),
            _ => unreachable!("a request for a counter returns a counter"),
        }
    }

    /// Registers a gauge. Waits for a current scrape.
    ///
    /// # Errors
    ///
    /// Those of [`counter`](Registry::counter), and [`Error::InvalidGroup`] if the name is in a
    /// group.
    pub fn gauge(&self, name: &str, help: &str, labels: Labels<'_>) -> Result<Gauge, Error> {
        match self.register(Kind::Gauge, name, help, labels)? {
            Instrument::Gauge(gauge) => Ok(gauge),
            _ => unreachable!("a request for a gauge returns a gauge"),
        }
    }

    /// Registers a histogram, with the buckets of the [`Builder`]. Waits for a current scrape.
    ///
    /// # Errors
    ///
    /// Those of [`gauge`](Registry::gauge), and [`Error::HistogramNameConflict`] if `name` with
    /// `_bucket`, `_sum` or `_count` is another metric.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
    ) -> Result<Histogram, Error> {
        match self.register(Kind::Histogram, name, help, labels)? {
            Instrument::Histogram(histogram) => Ok(histogram),
            _ => unreachable!("a request for a histogram returns a histogram"),
        }
    }

    /// Returns all series in the text format of Prometheus (0.0.4), in the order of registration.
    ///
    /// Each value was exact at an instant of this call. All series of a group, and all lines of a
    /// histogram, are of one instant.
    ///
    /// Costs one fence, if several CPUs use any series (see [`thiscpu::sum_all`]), and less than
    /// 100 ns a series. Registrations wait for it; handles do not.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::sum`].
    #[must_use]
    pub fn render(&self) -> String {
        text::render(&self.read())
    }

    /// Returns the errors of registrations through the facade, which cannot return them.
    ///
    /// At most 64, without duplicates. The handles of these registrations do nothing.
    #[must_use]
    pub fn rejected(&self) -> Vec<Error> {
        self.state().rejected.errors().to_vec()
    }

    fn register(
        &self,
        kind: Kind,
        name: &str,
        help: &str,
        labels: Labels<'_>,
    ) -> Result<Instrument, Error> {
        let request = Request { kind, name, origin: name, help, labels };
        match self.find_or_add(&request)? {
            (instrument, false) => Ok(instrument),
            (_, true) => Err(Error::DuplicateSeries { series: crate::name::series(name, labels)? }),
        }
    }

    /// Returns the series, and whether it existed before.
    pub(crate) fn find_or_add(&self, request: &Request<'_>) -> Result<(Instrument, bool), Error> {
        let Shared { settings, current_scrape, .. } = &*self.shared;
        self.state().find_or_add(request, settings, current_scrape)
    }

    /// Registers series of the process's `thiscpu-malloc`: totals, and some of each size class.
    ///
    /// The allocator is the one that is linked with this crate, if the program uses it, or else a
    /// preloaded one. Without either, all values are 0. Their names begin with `malloc_`. A size
    /// class that was never used has no lines, and no points for OpenTelemetry.
    ///
    /// A scrape then costs one visit of the allocator's slabs and lanes more. All of these values
    /// are of that visit, but not of one instant.
    ///
    /// # Errors
    ///
    /// If a metric or a series of one of these names exists: the series before it stay registered.
    #[cfg(feature = "malloc")]
    pub fn register_malloc(&self) -> Result<(), Error> {
        let mut state = self.state();
        for crate::malloc::Series { kind, name, help, size } in crate::malloc::series() {
            let label = size.as_deref().map(|size| ("size", size));
            let labels = label.as_slice();
            state.add_external(&Request { kind, name, origin: name, help, labels })?;
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic, when a fence is denied or there is no memory, leaves the state consistent.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a scrape. The documentation of `gauge` explains the steps.
    pub(crate) fn read(&self) -> Reading<'_> {
        let mut state = self.state();
        state.scrapes += 1;
        let number = state.scrapes;
        let current_scrape = self.shared.current_scrape.begin(number);
        state.gauges.iter().for_each(|(gauge, _)| gauge.begin_scrape());
        let summed: Vec<&dyn Summable> = state.sources.iter().map(Source::summable).collect();
        let values = sum_all(&summed);
        let ended =
            state.gauges.iter().map(|(gauge, at)| gauge.read_after_scrape(number, values[*at]));
        let gauges = ended.collect();
        drop(current_scrape);
        state.carry_billionths(&values);
        #[cfg(feature = "malloc")]
        let externals = if state.externals > 0 { crate::malloc::values() } else { Vec::new() };
        Reading {
            state,
            values,
            gauges,
            #[cfg(feature = "malloc")]
            externals,
        }
    }
}

impl Builder {
    /// Creates the registry.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidName`] or [`Error::EmptyName`] for a name or a prefix.
    /// - [`Error::InvalidBuckets`] if bounds are not finite or not sorted, if there are none or
    ///   more than 61, or if they are set twice.
    /// - [`Error::InvalidGroup`] if a group has no metric or more than 64, or if a metric is in two
    ///   groups.
    pub fn build(self) -> Result<Registry, Error> {
        Ok(Registry::with(self.settings()?))
    }
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
