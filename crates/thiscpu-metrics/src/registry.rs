//! The registry, which registers and reads series.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    builder::{Builder, Settings},
    counter::Counter,
    error::Error,
    family::{Instrument, Request},
    gauge::{CurrentScrape, Gauge},
    handle::{Handle, Opaque},
    handles::Handles,
    histogram::Histogram,
    media::Format,
    name::{self, Labels},
    reading::{Reading, Values},
    state::State,
    text,
};

/// A set of series that are registered and read together.
///
/// A registry is cheap to clone; all clones are the same registry. A series lives as long as its
/// registry, unless it is removed: by [`remove_handle`](Registry::remove_handle),
/// [`remove`](Registry::remove), [`remove_matching`](Registry::remove_matching) or an
/// [`idle_timeout`](Builder::idle_timeout).
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
    handles: Handles,
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
        let (state, current_scrape, handles) = Default::default();
        Registry { shared: Arc::new(Shared { settings, state, current_scrape, handles }) }
    }

    /// Registers a counter.
    ///
    /// Its name ends in `_total`, which is appended if necessary: OpenMetrics allows no other name.
    /// A label with an empty value does not exist, as for Prometheus. The first help text that is
    /// not empty is that of all series of the name. Waits for a current scrape.
    ///
    /// # Errors
    ///
    /// If a name or label is invalid or reserved (`le`, `__*`), if the series exists, or if the
    /// name has another kind or help text.
    pub fn counter(&self, name: &str, help: &str, labels: Labels<'_>) -> Result<Counter, Error> {
        self.add(name, help, labels)
    }

    /// Registers a gauge. Waits for a current scrape.
    ///
    /// # Errors
    ///
    /// Those of [`counter`](Registry::counter), and [`Error::InvalidGroup`] if the name is in a
    /// group.
    pub fn gauge(&self, name: &str, help: &str, labels: Labels<'_>) -> Result<Gauge, Error> {
        self.add(name, help, labels)
    }

    /// Registers a histogram, with the buckets of the [`Builder`]. Waits for a current scrape.
    ///
    /// # Errors
    ///
    /// Those of [`gauge`](Registry::gauge), and [`Error::NameConflict`] if `name` with `_bucket`,
    /// `_sum`, `_count` or `_created` is another metric.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
    ) -> Result<Histogram, Error> {
        self.add(name, help, labels)
    }

    /// Returns all series in the text format of Prometheus (0.0.4), in the order of registration.
    ///
    /// Each value was exact at an instant of this call. All series of a group, and all lines of a
    /// histogram, are of one instant.
    ///
    /// Costs one fence, if several CPUs use any series (see [`thiscpu::sum_all`]), and less than
    /// 100 ns a series. Registered budgets and accounts, a counter that is registered twice, and
    /// series that are freed cost further fences. Registrations wait for it; handles do not.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::sum`].
    #[must_use]
    pub fn render(&self) -> String {
        self.render_as(Format::Text)
    }

    /// Returns all series in a format, as [`render`](Registry::render) does.
    ///
    /// A series has one name in both formats, and equal values.
    ///
    /// ```
    /// use thiscpu_metrics::{Format, Registry};
    ///
    /// let registry = Registry::new();
    /// registry.counter("read_bytes_total", "Bytes so far.", &[])?.increment(3);
    /// assert_eq!(
    ///     registry.render_as(Format::OpenMetrics),
    ///     "# TYPE read_bytes counter\n\
    ///      ## UNIT read_bytes bytes\n\
    ///      ## HELP read_bytes Bytes so far.\n\
    ///      read_bytes_total 3\n\
    ///      ## EOF\n"
    /// );
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::sum`].
    #[must_use]
    pub fn render_as(&self, format: Format) -> String {
        text::render(&self.read(), format)
    }

    /// Returns the errors of registrations through the facade, which cannot return them.
    ///
    /// At most 64, without duplicates. The handles of these registrations do nothing.
    #[must_use]
    pub fn rejected(&self) -> Vec<Error> {
        self.state().rejected.errors().to_vec()
    }

    fn add<H: Handle>(&self, name: &str, help: &str, labels: Labels<'_>) -> Result<H, Error> {
        // As it was given, for the error.
        name::check(name)?;
        let (origin, name) = (name, name::of_kind(H::KIND, name));
        let request = Request { kind: H::KIND, name: &name, origin, help, labels };
        match self.find_or_add(&request)? {
            (handle, false) => Ok(handle),
            (_, true) => Err(Error::DuplicateSeries { series: name::series(&name, labels)? }),
        }
    }

    /// Returns the handle of a series, and whether the series existed before.
    pub(crate) fn find_or_add<H: Handle>(&self, request: &Request<'_>) -> Result<(H, bool), Error> {
        let Shared { settings, current_scrape, .. } = &*self.shared;
        let (instrument, is_known) = self.state().find_or_add(request, settings, current_scrape)?;
        Ok((of_kind(instrument), is_known))
    }

    /// Returns a handle that no scrape shows.
    pub(crate) fn detached<H: Handle>(&self, name: &str) -> H {
        let Shared { settings, current_scrape, .. } = &*self.shared;
        of_kind(Instrument::detached(H::KIND, name, settings, current_scrape))
    }

    /// Checks that a series of this kind, with these names of labels, can be registered.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Error> {
        name::series(request.name, request.labels)?;
        self.state().admit(request, &self.shared.settings).map(drop)
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
    /// If a metric or a series of one of these names exists. Then none is registered.
    #[cfg(feature = "malloc")]
    pub fn register_malloc(&self) -> Result<(), Error> {
        self.register("malloc", crate::malloc::Malloc)
    }

    /// Returns the handles that the facade has looked up.
    pub(crate) fn handles(&self) -> &Handles {
        &self.shared.handles
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic, when a fence is denied or there is no memory, leaves the state consistent.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a scrape.
    pub(crate) fn read(&self) -> Reading<'_> {
        let (mut state, values) = self.begin_read();
        self.let_idle_series_go(&mut state, &values);
        Reading { state, has_created: self.shared.settings.has_created, values }
    }

    /// Reads all values.
    pub(crate) fn begin_read(&self) -> (MutexGuard<'_, State>, Values) {
        let mut state = self.state();
        let values = Values::read(&mut state, &self.shared.current_scrape);
        (state, values)
    }

    /// Decides which series are shown, by the values of a scrape, and frees others.
    pub(crate) fn let_idle_series_go(&self, state: &mut State, values: &Values) {
        let handles = &self.shared.handles;
        state.update_presence(values, &self.shared.settings);
        if state.hidden.is_empty() {
            return;
        }
        // All of them: a look-up that began before a series was hidden may have added its handle.
        let hidden: Vec<u64> = state.hidden.iter().copied().collect();
        handles.evict(&hidden);
        state.free_hidden();
        handles.retry_rejected(state);
    }
}

/// Returns the handle of an instrument that was requested as one of its kind.
fn of_kind<H: Handle>(instrument: Instrument) -> H {
    H::of(Opaque(instrument)).expect("a request for a kind returns an instrument of it")
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
