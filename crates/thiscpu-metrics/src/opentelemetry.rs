//! Series for OpenTelemetry: observable instruments, whose callbacks read the registry.
//!
//! A meter calls the callback of each instrument separately. It does not say when a collection
//! begins or which reader it is for. But one thread makes a collection, and calls the callbacks in
//! the order in which they were registered. So instruments have numbers. If a thread asks an
//! instrument whose number is not greater than the last one it asked, it has begun a new
//! collection. That takes a scrape, which serves the thread until its next collection or its last
//! instrument. Collections of different threads are independent.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use ::opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Meter},
};

use crate::{
    error::{Error, Kind},
    format::BILLION,
    name,
    registry::Registry,
    state::{Family, Instrument, Series, State},
};

/// The number of collections at a time that keep their scrape.
///
/// Of more, the one that has been idle longest takes another scrape.
const COLLECTIONS_MAX: usize = 8;

/// The metrics of a registry as observable instruments of a meter: see [`Registry::observe`].
///
/// Dropping it does not remove the instruments, which live as long as the meter's provider.
#[derive(Debug)]
pub struct Observer {
    registry: Registry,
    meter: Meter,
    collections: Arc<Mutex<Collections>>,
    /// How many of the registry's families have instruments, or are in `skipped`: the first ones.
    families: usize,
    skipped: Vec<Error>,
}

/// The number of instruments, and the collections that have not reached the last one.
#[derive(Debug, Default)]
struct Collections {
    instruments: usize,
    /// The one that has been idle longest comes first.
    ongoing: Vec<Collection>,
}

#[derive(Debug)]
struct Collection {
    thread: ThreadId,
    /// The instrument that it has asked last.
    last: usize,
    scrape: Arc<Scrape>,
}

#[derive(Debug)]
struct Scrape {
    values: Vec<i64>,
    gauges: Vec<f64>,
    #[cfg(feature = "malloc")]
    externals: Vec<Option<u64>>,
}

/// The values that an instrument observes, each with its attributes.
type Points<T> = Vec<(T, Vec<KeyValue>)>;

/// Appends the values of a series.
type PushPoints<T> = fn(&Scrape, &Family, &Series, &mut Points<T>);

impl Registry {
    /// Makes observable instruments of `meter` for all registered metrics.
    ///
    /// - A counter and a gauge become instruments of their names.
    /// - A histogram `X` becomes the counters `X_bucket` (cumulative, with an attribute `le` for
    ///   each bound) and `X_count`, and the up-down counter `X_sum`, because observations may be
    ///   negative. OpenTelemetry has no observable histograms.
    ///
    /// Metrics that are registered later get instruments by [`Observer::update`]. New series of
    /// known metrics need no update.
    ///
    /// Each collection takes one scrape for all instruments. So it costs one fence, each value is
    /// exact, and series of a group are of one instant.
    ///
    /// Readers of one provider share their instruments' values. If their collections overlap, one
    /// reader gets some values of the other's scrape. To read groups at one instant with several
    /// readers, give each a provider, and call this method for its meter.
    ///
    /// ```
    /// use opentelemetry::metrics::MeterProvider as _;
    /// use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
    ///
    /// let registry = thiscpu_metrics::Registry::new();
    /// let requests = registry.counter("requests_total", "Requests so far.", &[])?;
    ///
    /// let exporter = InMemoryMetricExporter::default();
    /// let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    /// registry.observe(&provider.meter("server"));
    ///
    /// requests.increment(3);
    /// provider.force_flush()?;
    /// assert_eq!(exporter.get_finished_metrics()?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A metric gets no instrument if OpenTelemetry does not allow its name;
    /// [`Observer::skipped`] returns these. Names must begin with a letter, and have no `:` and at
    /// most 248 characters.
    ///
    /// If an instrument has more than 2,000 series (for `X_bucket`, series times buckets), the SDK
    /// merges the rest into one point with the attribute `otel.metric.overflow`. A view of the
    /// provider can set another cardinality limit.
    ///
    /// Do not call this method twice for one meter: it would make a second set of callbacks, with a
    /// second scrape for each collection. Keep the observer and update it instead.
    pub fn observe(&self, meter: &Meter) -> Observer {
        let (registry, meter, collections) = (self.clone(), meter.clone(), Arc::default());
        let mut observer =
            Observer { registry, meter, collections, families: 0, skipped: Vec::new() };
        observer.update();
        observer
    }
}

impl Observer {
    /// Makes instruments for metrics that were registered since the last call.
    ///
    /// Must not be called from an instrument's callback.
    pub fn update(&mut self) {
        // The registry's lock is not held while instruments are made. The meter holds its own locks
        // while it calls the callbacks, which lock the registry.
        let new: Vec<(String, String, Kind)> = {
            let state = self.registry.state();
            let each = |family: &Family| (family.name.clone(), family.help.clone(), family.kind);
            state.families[self.families..].iter().map(each).collect()
        };
        for (name, help, kind) in new {
            if is_instrument_name(&name) {
                self.make(&name, &help, kind);
            } else {
                self.skipped.push(Error::InvalidOpenTelemetryName { name });
            }
            self.families += 1;
        }
    }

    /// Returns an error for each metric that has no instrument, because of its name.
    #[must_use]
    pub fn skipped(&self) -> &[Error] {
        &self.skipped
    }

    /// Makes the instruments of the next family.
    fn make(&self, name: &str, help: &str, kind: Kind) {
        let (meter, help) = (&self.meter, help.to_owned());
        let whole = |name: String, push| {
            let builder = meter.u64_observable_counter(name).with_description(help.clone());
            let _ = builder.with_callback(self.callback(push)).build();
        };
        match kind {
            Kind::Counter => whole(name.to_owned(), push_counter),
            Kind::Gauge => {
                let builder = meter.f64_observable_gauge(name.to_owned()).with_description(help);
                let _ = builder.with_callback(self.callback(push_gauge)).build();
            }
            Kind::Histogram => {
                whole(format!("{name}_bucket"), push_buckets);
                whole(format!("{name}_count"), push_count);
                // An up-down counter, because observations may be negative.
                let builder = meter.f64_observable_up_down_counter(format!("{name}_sum"));
                let builder = builder.with_description(help);
                let _ = builder.with_callback(self.callback(push_sum)).build();
            }
        }
    }

    /// Returns a callback for the next instrument of the next family.
    fn callback<T: Copy + 'static>(
        &self,
        push: PushPoints<T>,
    ) -> impl Fn(&dyn AsyncInstrument<T>) + Send + Sync + 'static + use<T> {
        let (registry, collections, family) =
            (self.registry.clone(), Arc::clone(&self.collections), self.families);
        let instrument = lock(&collections).add_instrument();
        move |observer| {
            // A panic, when a fence is denied, must not reach the meter: it would poison the
            // meter's locks. The panic hook has reported it.
            let scrape = || scrape_for(instrument, &collections, || scrape(&registry));
            let Ok(scrape) = catch_unwind(AssertUnwindSafe(scrape)) else { return };
            let mut points = Vec::new();
            scrape.push(&registry.state(), family, push, &mut points);
            // No lock of this crate is held here: the observer has its own locks.
            points.iter().for_each(|(value, attributes)| observer.observe(*value, attributes));
        }
    }
}

fn lock(collections: &Mutex<Collections>) -> MutexGuard<'_, Collections> {
    collections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the scrape that `instrument` observes for this thread's collection.
fn scrape_for(
    instrument: usize,
    collections: &Mutex<Collections>,
    scrape: impl FnOnce() -> Arc<Scrape>,
) -> Arc<Scrape> {
    let thread = thread::current().id();
    // Removes the previous collection, even if the scrape panics.
    let known = lock(collections).take(thread).filter(|collection| collection.last < instrument);
    // Not under the lock, so that collections of other threads do not wait.
    let scrape = known.map_or_else(scrape, |collection| collection.scrape);
    lock(collections).keep(Collection { thread, last: instrument, scrape: Arc::clone(&scrape) });
    scrape
}

fn scrape(registry: &Registry) -> Arc<Scrape> {
    let reading = registry.read();
    Arc::new(Scrape {
        values: reading.values,
        gauges: reading.gauges,
        #[cfg(feature = "malloc")]
        externals: reading.externals,
    })
}

impl Collections {
    /// Returns the number of a new instrument.
    fn add_instrument(&mut self) -> usize {
        self.instruments += 1;
        self.instruments - 1
    }

    /// Removes and returns a thread's collection.
    fn take(&mut self, thread: ThreadId) -> Option<Collection> {
        let at = self.ongoing.iter().position(|collection| collection.thread == thread)?;
        Some(self.ongoing.remove(at))
    }

    /// Keeps a collection for its next instrument, if there is one.
    fn keep(&mut self, collection: Collection) {
        if collection.last + 1 == self.instruments {
            return;
        }
        if self.ongoing.len() == COLLECTIONS_MAX {
            // Usually its thread has ended: a view may have dropped the last instrument.
            self.ongoing.remove(0);
        }
        self.ongoing.push(collection);
    }
}

impl Scrape {
    /// Returns the value of a series that another library has, if it has one now.
    #[cfg(feature = "malloc")]
    fn external(&self, series: &Series) -> Option<u64> {
        let is_external = matches!(series.instrument, Instrument::External);
        is_external.then(|| self.externals.get(series.at).copied().flatten()).flatten()
    }

    fn push<T>(&self, state: &State, family: usize, push: PushPoints<T>, points: &mut Points<T>) {
        let family = &state.families[family];
        // A series that was registered after the scrape has no value in it.
        let has_value = |series: &&Series| match series.instrument {
            Instrument::Gauge(_) => series.at < self.gauges.len(),
            #[cfg(feature = "malloc")]
            Instrument::External => self.external(series).is_some(),
            _ => series.at < self.values.len(),
        };
        family
            .series
            .iter()
            .filter(has_value)
            .for_each(|series| push(self, family, series, points));
    }
}

fn attributes(family: &Family, series: &Series) -> Vec<KeyValue> {
    let pairs = name::parse_labels(family.labels(series)).into_iter();
    pairs.map(|(label, value)| KeyValue::new(label, value)).collect()
}

fn push_counter(scrape: &Scrape, family: &Family, series: &Series, points: &mut Points<u64>) {
    #[cfg(feature = "malloc")]
    if let Some(value) = scrape.external(series) {
        return points.push((value, attributes(family, series)));
    }
    points.push((scrape.values[series.at] as u64, attributes(family, series)));
}

fn push_gauge(scrape: &Scrape, family: &Family, series: &Series, points: &mut Points<f64>) {
    #[cfg(feature = "malloc")]
    if let Some(value) = scrape.external(series) {
        return points.push((value as f64, attributes(family, series)));
    }
    points.push((scrape.gauges[series.at], attributes(family, series)));
}

fn push_buckets(scrape: &Scrape, family: &Family, series: &Series, points: &mut Points<u64>) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let mut count = 0_u64;
    for (bound, &inside) in histogram.0.bounds().texts().zip(&scrape.values[series.at..]) {
        count = count.wrapping_add(inside as u64);
        let mut attributes = attributes(family, series);
        attributes.push(KeyValue::new("le", bound.to_owned()));
        points.push((count, attributes));
    }
}

fn push_count(scrape: &Scrape, family: &Family, series: &Series, points: &mut Points<u64>) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let inside = scrape.values[series.at..].iter().take(histogram.0.bounds().buckets());
    let count = inside.fold(0_u64, |count, &inside| count.wrapping_add(inside as u64));
    points.push((count, attributes(family, series)));
}

fn push_sum(scrape: &Scrape, family: &Family, series: &Series, points: &mut Points<f64>) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let at = series.at + histogram.0.bounds().buckets();
    let [whole, billionths] = [scrape.values[at], scrape.values[at + 1]];
    let sum = whole as f64 + billionths as f64 / BILLION as f64;
    points.push((sum, attributes(family, series)));
}

/// Returns whether OpenTelemetry allows a Prometheus name, with the suffix of a histogram.
fn is_instrument_name(name: &str) -> bool {
    const LEN_MAX: usize = 255 - "_bucket".len();
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !name.contains(':')
        && name.len() <= LEN_MAX
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use ::opentelemetry::metrics::{MeterProvider as _, noop::NoopMeterProvider};

    use super::*;

    /// An instrument that keeps its last value.
    #[derive(Default)]
    struct Last(Mutex<Option<u64>>);

    impl AsyncInstrument<u64> for Last {
        fn observe(&self, value: u64, _: &[KeyValue]) {
            *self.0.lock().unwrap() = Some(value);
        }
    }

    fn observer(registry: &Registry) -> Observer {
        let (meter, collections) = (NoopMeterProvider::new().meter("test"), Arc::default());
        Observer {
            registry: registry.clone(),
            meter,
            collections,
            families: 0,
            skipped: Vec::new(),
        }
    }

    /// Interleaves the collections of two threads, and increments the counters in between.
    #[test]
    fn collections_of_two_threads_each_read_one_instant() {
        const ROUNDS: u64 = 100;
        let names = ["begun", "ended"];
        let registry = Registry::builder().group("g", &names).build().unwrap();
        let counters = names.map(|name| registry.counter(name, "", &[]).unwrap());
        let mut observer = observer(&registry);
        let callbacks = names.map(|_| {
            let callback = observer.callback(push_counter);
            observer.families += 1;
            callback
        });
        let turn = Barrier::new(2);
        let collect = |is_second: bool| {
            let ask = |member: usize| {
                let last = Last::default();
                for is_mine in [!is_second, is_second] {
                    turn.wait();
                    if is_mine {
                        callbacks[member](&last);
                        counters.iter().for_each(|counter| counter.increment(1));
                    }
                }
                last.0.into_inner().unwrap()
            };
            // All rounds before the checks, so that no thread waits for a thread that has panicked.
            for [begun, ended] in (0..ROUNDS).map(|_| [ask(0), ask(1)]).collect::<Vec<_>>() {
                assert!(begun.is_some() && begun == ended, "{begun:?} {ended:?}");
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| collect(false));
            collect(true);
        });
        assert_eq!(registry.state().scrapes, 2 * ROUNDS);
        assert!(lock(&observer.collections).ongoing.is_empty());
    }

    #[test]
    fn collection_takes_one_scrape_at_its_start() {
        let registry = Registry::new();
        let counter = registry.counter("hits", "", &[]).unwrap();
        let observer = observer(&registry);
        let callbacks = [(); 3].map(|()| observer.callback(push_counter));
        let ask = |instrument: usize| {
            let last = Last::default();
            callbacks[instrument](&last);
            counter.increment(1);
            last.0.into_inner().unwrap()
        };
        // The second collection does not reach the last instrument.
        let all = [0, 1, 2, 0, 1, 0, 1, 2].map(ask);
        assert_eq!(all, [0, 0, 0, 3, 3, 5, 5, 5].map(Some));
    }

    /// Checks that instruments after a scrape that panicked do not use the previous scrape.
    #[test]
    fn scrape_that_panics_discards_the_previous_one() {
        let registry = Registry::new();
        let observer = observer(&registry);
        let _callbacks = [(); 3].map(|()| observer.callback(push_counter));
        let ask = |instrument: usize| {
            let _ = scrape_for(instrument, &observer.collections, || scrape(&registry));
            registry.state().scrapes
        };
        assert_eq!([0, 1].map(ask), [1, 1]);
        let failing = || scrape_for(0, &observer.collections, || panic!("deliberate"));
        catch_unwind(AssertUnwindSafe(failing)).unwrap_err();
        assert_eq!([1, 2].map(ask), [2, 2]);
    }

    #[test]
    fn collections_of_ended_threads_are_limited() {
        let registry = Registry::new();
        let observer = observer(&registry);
        registry.counter("hits", "", &[]).unwrap();
        let callbacks = [(); 2].map(|()| observer.callback(push_counter));
        for _ in 0..2 * COLLECTIONS_MAX {
            thread::scope(|scope| {
                scope.spawn(|| callbacks[0](&Last::default()));
            });
        }
        assert_eq!(lock(&observer.collections).ongoing.len(), COLLECTIONS_MAX);
    }
}
