//! The recorder for the `metrics` facade.

use metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

use crate::{
    counter::{CounterRef, GroupCounter, Repr, RowCounter},
    error::{Error, Kind},
    family::Request,
    gauge,
    handle::Handle,
    histogram,
    name::{self, NameKind, sanitize},
    registry::Registry,
};

/// A recorder of the `metrics` facade, whose series are those of a [`Registry`].
///
/// In names and labels, each character that Prometheus does not allow becomes `_`, as in other
/// exporters for the facade. Names of counters end in `_total`, which is appended if necessary.
/// Groups and buckets are those of the registry's [`Builder`](crate::Builder), by Prometheus names.
///
/// A metric that still cannot be registered gets a no-op handle: two names, or two labels of a
/// series, that become the same; a gauge of a counter's name; a label `le`; a series of a
/// registered structure. [`Registry::rejected`] and a comment at the end of each scrape in text
/// format list these. They are tried again once a metric or a structure was removed.
///
/// Each use of a macro, such as `counter!(...)`, looks its series up. For a known series that takes
/// no lock and never waits. But the facade copies the labels, and threads that use one series share
/// the count of its handles. So keep the handle where speed matters. Registering a new series, and
/// the facade's `describe_*`, may wait for a scrape.
///
/// The macros must not be used in signal handlers, because they allocate. They must not be used in
/// a child of `fork` either, if another thread of the parent might have registered a series at the
/// time: the child might wait forever. Handles that were looked up before may be used where those
/// of a [`Registry`] may.
///
/// ```
/// let registry = thiscpu_metrics::Registry::new();
/// registry.install_recorder()?; // once a program
///
/// metrics::describe_counter!("http.requests", "Requests so far.");
/// metrics::counter!("http.requests", "method" => "get").increment(2);
/// assert!(registry.render().contains("http_requests_total{method=\"get\"} 2\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    registry: Registry,
}

impl Registry {
    /// Returns a recorder that is not installed.
    ///
    /// For `metrics::with_local_recorder`, or for use behind other recorders.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        Recorder { registry: self.clone() }
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
    /// Returns a new series; `None`, after recording the error, if it cannot be registered.
    fn register<H: Handle>(&self, key: &Key) -> Option<H> {
        let name = sanitize(NameKind::Metric, key.name());
        let labels: Vec<_> = key
            .labels()
            .map(|label| (sanitize(NameKind::Label, label.key()), label.value()))
            .collect();
        let labels: Vec<_> = labels.iter().map(|(label, value)| (&**label, *value)).collect();
        let name = name::of_kind(H::KIND, &name);
        let origin = key.name();
        let request = Request { kind: H::KIND, name: &name, origin, help: "", labels: &labels };
        match self.registry.find_or_add(&request) {
            Ok((handle, _)) => Some(handle),
            Err(error) => {
                self.registry.state().rejected.add(error);
                None
            }
        }
    }

    fn describe(&self, kind: Kind, key: &KeyName, description: &str) {
        let name = sanitize(NameKind::Metric, key.as_str());
        self.registry.state().describe(&name::of_kind(kind, &name), description);
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(Kind::Counter, &key, &description);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(Kind::Gauge, &key, &description);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(Kind::Histogram, &key, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let counter = self.registry.handles().counters.get_or(key, || self.register(key));
        match counter.map(|counter| counter.0) {
            Some(Repr::Row(own)) => metrics::Counter::from_arc(own),
            Some(Repr::Group(member)) => metrics::Counter::from_arc(member),
            None => metrics::Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let gauge = self.registry.handles().gauges.get_or(key, || self.register(key));
        gauge.map_or_else(metrics::Gauge::noop, |gauge| metrics::Gauge::from_arc(gauge.0))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let histogram = self.registry.handles().histograms.get_or(key, || self.register(key));
        let noop = metrics::Histogram::noop;
        histogram.map_or_else(noop, |histogram| metrics::Histogram::from_arc(histogram.0))
    }
}

impl CounterFn for RowCounter {
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
    use crate::table::Evict as _;

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
        assert!(registry.render().contains("hits_total 2\n"));
    }

    /// Frees the name while a look-up is being rejected.
    #[test]
    fn rejection_is_forgotten_if_it_may_be_outdated() {
        let (registry, key) = (Registry::new(), Key::from_static_name("a"));
        let (table, counter) = (&registry.handles().counters, registry.counter("a", "", &[]));
        let rejected = table.get_or(&key, || {
            table.forget_rejected();
            None
        });
        assert!(rejected.is_none());
        // Nothing was kept, so this look-up registers the metric.
        assert!(table.get_or(&key, || counter.ok()).is_some());
    }
}
