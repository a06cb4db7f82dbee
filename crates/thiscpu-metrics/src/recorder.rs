//! The recorder for the `metrics` facade.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

use crate::{
    counter::{CounterRef, FacadeCounter, GroupCounter, Repr},
    error::{Error, Kind},
    gauge, histogram,
    name::{NameKind, sanitize},
    registry::Registry,
    state::{Instrument, Request},
};

/// A recorder of the `metrics` facade, whose series are those of a [`Registry`].
///
/// In names and labels, each character that Prometheus does not allow becomes `_`, as in other
/// exporters for the facade. A metric that still cannot be registered gets a no-op handle: two
/// names that become the same, a gauge of a counter's name, a label `le`. [`Registry::rejected`]
/// and a comment at the end of each scrape list these. Groups and buckets are those of the
/// registry's [`Builder`](crate::Builder), by Prometheus names.
///
/// Each use of a macro, such as `counter!(...)`, looks its series up. For a known series that takes
/// a read lock, on a word that all CPUs share, and may allocate. So keep the handle where speed
/// matters. A look-up of a known series never waits for a scrape. Registering a new one, and the
/// facade's `describe_*`, may.
///
/// Because of that lock, the macros must not be used in signal handlers. They must not be used in a
/// child of `fork` either, if another thread of the parent might have been in one at the time: the
/// child might wait forever. Handles that were looked up before may be used where those of a
/// [`Registry`] may.
///
/// ```
/// let registry = thiscpu_metrics::Registry::new();
/// registry.install_recorder()?; // once a program
///
/// metrics::describe_counter!("http.requests", "Requests so far.");
/// metrics::counter!("http.requests", "method" => "get").increment(2);
/// assert!(registry.render().contains("http_requests{method=\"get\"} 2\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    registry: Registry,
    counters: HandleCache<metrics::Counter>,
    gauges: HandleCache<metrics::Gauge>,
    histograms: HandleCache<metrics::Histogram>,
}

/// Handles that were looked up before, so that no look-up of them waits for a scrape.
#[derive(Debug)]
struct HandleCache<H>(RwLock<HashMap<Key, H>>);

impl<H> Default for HandleCache<H> {
    fn default() -> Self {
        HandleCache(RwLock::default())
    }
}

impl<H: Clone> HandleCache<H> {
    /// Returns the handle of a key; makes it if it is unknown.
    fn get_or(&self, key: &Key, make: impl FnOnce() -> H) -> H {
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return known.clone();
        }
        // Not under the lock: this may wait for a scrape. Two threads that make the same handle get
        // the same series from the registry.
        let made = make();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(key.clone()).or_insert(made).clone()
    }
}

impl Registry {
    /// Returns a recorder that is not installed.
    ///
    /// For `metrics::with_local_recorder`, or for use behind other recorders.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        let (counters, gauges, histograms) = Default::default();
        Recorder { registry: self.clone(), counters, gauges, histograms }
    }

    /// Installs a recorder for the whole program.
    ///
    /// # Errors
    ///
    /// [`Error::RecorderInstalled`] if the program already has one.
    pub fn install_recorder(&self) -> Result<(), Error> {
        metrics::set_global_recorder(self.recorder()).map_err(|_| Error::RecorderInstalled)
    }
}

impl Recorder {
    /// Returns the series; `None`, after recording the error, if it cannot be registered.
    fn instrument(&self, kind: Kind, key: &Key) -> Option<Instrument> {
        let name = sanitize(NameKind::Metric, key.name());
        let labels: Vec<_> = key
            .labels()
            .map(|label| (sanitize(NameKind::Label, label.key()), label.value()))
            .collect();
        let labels: Vec<_> = labels.iter().map(|(label, value)| (&**label, *value)).collect();
        let request = Request { kind, name: &name, origin: key.name(), help: "", labels: &labels };
        match self.registry.find_or_add(&request) {
            Ok((instrument, _)) => Some(instrument),
            Err(error) => {
                self.registry.state().rejected.add(error);
                None
            }
        }
    }

    fn describe(&self, key: &KeyName, description: &str) {
        let name = sanitize(NameKind::Metric, key.as_str());
        self.registry.state().describe(&name, description);
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&key, &description);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&key, &description);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&key, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        self.counters.get_or(key, || match self.instrument(Kind::Counter, key) {
            Some(Instrument::Counter(counter)) => match counter.0 {
                Repr::Row(own) => own.to_facade(),
                Repr::Group(member) => metrics::Counter::from_arc(member),
            },
            _ => metrics::Counter::noop(),
        })
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        self.gauges.get_or(key, || match self.instrument(Kind::Gauge, key) {
            Some(Instrument::Gauge(gauge)) => metrics::Gauge::from_arc(gauge.0),
            _ => metrics::Gauge::noop(),
        })
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        self.histograms.get_or(key, || match self.instrument(Kind::Histogram, key) {
            Some(Instrument::Histogram(histogram)) => metrics::Histogram::from_arc(histogram.0),
            _ => metrics::Histogram::noop(),
        })
    }
}

impl<const I: usize> CounterFn for FacadeCounter<I> {
    fn increment(&self, value: u64) {
        CounterRef::increment(self, value);
    }

    fn absolute(&self, value: u64) {
        CounterRef::absolute(self, value);
    }
}

impl CounterFn for GroupCounter {
    fn increment(&self, value: u64) {
        CounterRef::increment(self, value);
    }

    fn absolute(&self, value: u64) {
        CounterRef::absolute(self, value);
    }
}

impl GaugeFn for gauge::Core {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        gauge::Core::set(self, value);
    }
}

impl HistogramFn for histogram::Core {
    fn record(&self, value: f64) {
        histogram::Core::record(self, value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        histogram::Core::record(self, value, count as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use metrics::{Level, Recorder as _};

    use super::*;

    #[test]
    fn known_handles_are_found_during_a_scrape() {
        let registry = Registry::new();
        let recorder = registry.recorder();
        let metadata = Metadata::new("", Level::INFO, None);
        let key = Key::from_static_name("hits");
        let find = || {
            recorder.register_counter(&key, &metadata).increment(1);
            recorder.register_gauge(&Key::from_static_name("level"), &metadata).increment(1.0);
        };
        find();
        thread::scope(|scope| {
            let state = registry.state();
            let (found, is_found) = mpsc::channel();
            scope.spawn(move || {
                find();
                found.send(()).unwrap();
            });
            // A look-up that needs the registry's lock would wait until the timeout.
            let outcome = is_found.recv_timeout(Duration::from_secs(60));
            drop(state);
            outcome.unwrap();
        });
        assert!(registry.render().contains("hits 2\n"));
    }
}
