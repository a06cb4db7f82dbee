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
    name::{NameKind, sanitised},
    registry::Registry,
    state::{Instrument, Request},
};

/// What programs and libraries record by the macros of the [`metrics`] facade, in a [`Registry`].
///
/// Names and labels become ones that Prometheus accepts by `_` for each character that cannot be there, as in other exporters for
/// the facade. What cannot be (two names that come to the same, a gauge of a counter's name, a label `le`) has a handle that
/// does nothing; [`Registry::rejected`] tells, and a comment at the end of a scrape. Groups and buckets are as the registry's [`Builder`](crate::Builder)
/// was told, by the names that Prometheus has.
///
/// Asking for a series that is known (which each `counter!(...)` does) takes a lock for reading, on a word that all CPUs
/// share, and may allocate; so keep the handle where speed matters. It never waits for a scrape; asking for a new one may, and so do the facade's `describe_*`.
///
/// For the same reason none of the macros may be used in signal handlers, nor in a child of `fork` if another thread of its parent was amid one when it was
/// forked: it may wait for ever. Handles that were request for before may be used as those of a [`Registry`].
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

/// Handles of what was request for before, so that no look-up waits for a scrape.
#[derive(Debug)]
struct HandleCache<H>(RwLock<HashMap<Key, H>>);

impl<H> Default for HandleCache<H> {
    fn default() -> Self {
        HandleCache(RwLock::default())
    }
}

impl<H: Clone> HandleCache<H> {
    /// The handle that is known, or else what `make` makes.
    fn get_or(&self, key: &Key, make: impl FnOnce() -> H) -> H {
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return known.clone();
        }
        // Not under the lock: it may wait for a scrape. Who comes second gets the same series, from the registry.
        let made = make();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(key.clone()).or_insert(made).clone()
    }
}

impl Registry {
    /// A recorder, for [`metrics::with_local_recorder`] or to be put behind others.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        let (counters, gauges, histograms) = Default::default();
        Recorder { registry: self.clone(), counters, gauges, histograms }
    }

    /// Makes a recorder the program's: from now on the facade's macros come here.
    ///
    /// # Errors
    ///
    /// If the program has one already.
    pub fn install_recorder(&self) -> Result<(), Error> {
        metrics::set_global_recorder(self.recorder()).map_err(|_| Error::RecorderInstalled)
    }
}

impl Recorder {
    /// The series, or nothing if it cannot be.
    fn instrument(&self, kind: Kind, key: &Key) -> Option<Instrument> {
        let name = sanitised(NameKind::Metric, key.name());
        let labels: Vec<_> = key
            .labels()
            .map(|label| (sanitised(NameKind::Label, label.key()), label.value()))
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
        let name = sanitised(NameKind::Metric, key.as_str());
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
    fn what_is_known_is_found_during_a_scrape() {
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
            // Where it waits for the scrape, it would wait for ever.
            let outcome = is_found.recv_timeout(Duration::from_secs(60));
            drop(state);
            outcome.unwrap();
        });
        assert!(registry.render().contains("hits 2\n"));
    }
}
