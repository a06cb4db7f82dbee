//! The registry: where series are registered, and read.

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

/// Series that are registered and read together. Cheap to clone; all clones are the same registry.
///
/// Registering takes the registry's lock, which a scrape holds from its first look to its last line. Whoever has a handle needs it
/// no more, and is never held up by a scrape. A series stays for as long as the registry.
///
/// None of this may be called in signal handlers. A child of `fork` may do all of it, unless another thread of its parent was registering or
/// scraping when it was forked: it would wait for ever. Handles say for themselves where they may be used.
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
    /// A registry without series or groups, with Prometheus' usual buckets.
    #[must_use]
    pub fn new() -> Registry {
        Registry::with(Settings::by_default())
    }

    /// For a registry with groups or other buckets.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn with(settings: Settings) -> Registry {
        let (state, current_scrape) = (Mutex::default(), Arc::default());
        Registry { shared: Arc::new(Shared { settings, state, current_scrape }) }
    }

    /// Registers a counter. By convention its name ends in `_total`; it is written as it is given.
    ///
    /// A label with an empty value is one that is not there, as for Prometheus: the same series. The first help text that is not empty counts for all
    /// series of the name.
    ///
    /// # Errors
    ///
    /// If Prometheus has no such names, the series is there already, its name is a metric of another kind or help text, or the label is reserved:
    /// `le`, and what begins with `__`.
    pub fn counter(&self, name: &str, help: &str, labels: Labels<'_>) -> Result<Counter, Error> {
        match self.register(Kind::Counter, name, help, labels)? {
            Instrument::Counter(counter) => Ok(counter),
            _ => unreachable!("a new counter is a counter"),
        }
    }

    /// Registers a gauge.
    ///
    /// # Errors
    ///
    /// As [`counter`](Registry::counter), and if the name is in a group.
    pub fn gauge(&self, name: &str, help: &str, labels: Labels<'_>) -> Result<Gauge, Error> {
        match self.register(Kind::Gauge, name, help, labels)? {
            Instrument::Gauge(gauge) => Ok(gauge),
            _ => unreachable!("a new gauge is a gauge"),
        }
    }

    /// Registers a histogram, with the buckets that the [`Builder`] was told.
    ///
    /// # Errors
    ///
    /// As [`gauge`](Registry::gauge), and if `name` with `_bucket`, `_sum` or `_count` is another metric's.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
    ) -> Result<Histogram, Error> {
        match self.register(Kind::Histogram, name, help, labels)? {
            Instrument::Histogram(histogram) => Ok(histogram),
            _ => unreachable!("a new histogram is a histogram"),
        }
    }

    /// What is registered, in the text format of Prometheus (0.0.4), in the order in which it was registered.
    ///
    /// Each value was the exact one at an instant of this call; all series of a group, and all lines of a histogram, are of one instant. Costs
    /// one fence, if anything is in use on several CPUs (see [`thiscpu::sum_all`]), and less than 100 ns a series; holds up who
    /// registers, and nobody else.
    ///
    /// # Panics
    ///
    /// As [`thiscpu::Counter::sum`].
    #[must_use]
    pub fn render(&self) -> String {
        text::render(&self.read())
    }

    /// What was wrong with registrations by the facade, which has no way to say it: up to 64 errors, each once. Their handles do nothing.
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

    /// The series, and whether it was there before.
    pub(crate) fn find_or_add(&self, request: &Request<'_>) -> Result<(Instrument, bool), Error> {
        let Shared { settings, current_scrape, .. } = &*self.shared;
        self.state().find_or_add(request, settings, current_scrape)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic (of a fence that cannot be had, or for want of memory) leaves all of it usable.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A scrape. `gauge` says why its first, second and last step are what they are.
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
        Reading { state, values, gauges }
    }
}

impl Builder {
    /// The registry.
    ///
    /// # Errors
    ///
    /// If a name, or the beginning of one, is none that Prometheus accepts, bounds are not as they have to be or given twice, a group has no metric or
    /// more than 64, or a metric is in two groups.
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
