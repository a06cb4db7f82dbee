//! The same series for OpenTelemetry: observable instruments, whose callbacks read the registry.
//!
//! A meter asks each instrument by itself, and says neither when a collection begins nor for whom it is. But a collection is one thread's, which calls
//! the callbacks in the order in which they were registered. So instruments have numbers, and a thread that asks one whose number is not above
//! the last it asked has begun a new collection: that takes a scrape, which serves the thread until its next collection or its last instrument.
//! Collections of different threads have nothing to do with each other.

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
    state::{Family, Instrument, Reading, Series, State},
};

/// So many collections can be under way at once; of more, the one that has waited longest takes another scrape.
const COLLECTIONS_MAX: usize = 8;

/// A registry's metrics as observable instruments of a meter: see [`Registry::observe`]. To drop it ends nothing; a meter's instruments
/// are there for as long as the meter's provider.
#[derive(Debug)]
pub struct Observer {
    registry: Registry,
    meter: Meter,
    collections: Arc<Mutex<Collections>>,
    /// How many of the registry's families have been seen: the first so many.
    families: usize,
    skipped: Vec<Error>,
}

/// How many instruments there are, and collections that have not come to the last: first the one that has asked for nothing the longest.
#[derive(Debug, Default)]
struct Collections {
    instruments: usize,
    ongoing: Vec<Collection>,
}

#[derive(Debug)]
struct Collection {
    thread: ThreadId,
    /// The instrument that it asked last.
    last: usize,
    scrape: Arc<Scrape>,
}

#[derive(Debug)]
struct Scrape {
    values: Vec<i64>,
    gauges: Vec<f64>,
}

/// What an instrument is points of a series: values, with the attributes of each.
type Points<T> = Vec<(T, Vec<KeyValue>)>;

/// What becomes of a series.
type PushPoints<T> = fn(&Scrape, &Family, &Series, &mut Points<T>);

impl Registry {
    /// Makes an observable instrument of `meter` for each metric that is registered: counters and gauges as they are; of a histogram `X` the counters
    /// `X_bucket` (cumulative, with an attribute `le` for each bound) and `X_count`, and `X_sum`, which goes up and down because observations may be
    /// negative; there are no histograms that are observed. What is registered later is there after [`Observer::update`]; new series of known metrics are there at once.
    ///
    /// Each collection takes one scrape, for all instruments: one fence, each value exact, series of a group of one instant of that collection.
    /// Readers of one provider share their instruments' values, so one that collects amid another's collection replaces some of what that has: give
    /// each reader a provider, and a call of this for its meter, if several are to have groups of one instant.
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
    /// Metrics with names that OpenTelemetry does not have get no instruments, and are in [`Observer::skipped`]: its names begin with a letter, have no
    /// `:`, and 248 characters at most.
    ///
    /// The SDK puts all that an instrument has above 2,000 series (for `X_bucket`, series times buckets) into one point with the attribute
    /// `otel.metric.overflow`, unless a view of the provider gives the instrument another cardinality limit.
    ///
    /// To call it twice for one meter makes a second set of callbacks, with a second scrape for each collection: keep the observer, and update it.
    pub fn observe(&self, meter: &Meter) -> Observer {
        let (registry, meter, collections) = (self.clone(), meter.clone(), Arc::default());
        let mut observer =
            Observer { registry, meter, collections, families: 0, skipped: Vec::new() };
        observer.update();
        observer
    }
}

impl Observer {
    /// Makes instruments for metrics that were registered since the last call. Not from an instrument's callback.
    pub fn update(&mut self) {
        // The registry's lock is not held while instruments are made: the meter has locks too, which it holds while it calls us.
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

    /// The metrics that have no instruments, because of their names: for each an error that says so.
    #[must_use]
    pub fn skipped(&self) -> &[Error] {
        &self.skipped
    }

    /// Makes the next family's instruments.
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
                // Not one that only grows: observations may be negative.
                let builder = meter.f64_observable_up_down_counter(format!("{name}_sum"));
                let builder = builder.with_description(help);
                let _ = builder.with_callback(self.callback(push_sum)).build();
            }
        }
    }

    /// A callback of the next family's next instrument.
    fn callback<T: Copy + 'static>(
        &self,
        push: PushPoints<T>,
    ) -> impl Fn(&dyn AsyncInstrument<T>) + Send + Sync + 'static + use<T> {
        let (registry, collections, family) =
            (self.registry.clone(), Arc::clone(&self.collections), self.families);
        let instrument = lock(&collections).add_instrument();
        move |observer| {
            // A panic (of a fence that cannot be had) must not reach the meter, which would be unusable from then on. It has been reported.
            let scrape = || scrape_for(instrument, &collections, || scrape(&registry));
            let Ok(scrape) = catch_unwind(AssertUnwindSafe(scrape)) else { return };
            let mut points = Vec::new();
            scrape.push(&registry.state(), family, push, &mut points);
            // No lock of ours is held: the observer has its own.
            points.iter().for_each(|(value, attributes)| observer.observe(*value, attributes));
        }
    }
}

fn lock(collections: &Mutex<Collections>) -> MutexGuard<'_, Collections> {
    collections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `instrument` is to push this thread's collection.
fn scrape_for(
    instrument: usize,
    collections: &Mutex<Collections>,
    scrape: impl FnOnce() -> Arc<Scrape>,
) -> Arc<Scrape> {
    let thread = thread::current().id();
    // Nothing is left of the collection before, even if the scrape panics.
    let known = lock(collections).take(thread).filter(|collection| collection.last < instrument);
    // Not under the lock: others' collections need not wait.
    let scrape = known.map_or_else(scrape, |collection| collection.scrape);
    lock(collections).keep(Collection { thread, last: instrument, scrape: Arc::clone(&scrape) });
    scrape
}

fn scrape(registry: &Registry) -> Arc<Scrape> {
    let Reading { values, gauges, .. } = registry.read();
    Arc::new(Scrape { values, gauges })
}

impl Collections {
    /// The number of a new instrument.
    fn add_instrument(&mut self) -> usize {
        self.instruments += 1;
        self.instruments - 1
    }

    /// The thread's collection, which is here no more.
    fn take(&mut self, thread: ThreadId) -> Option<Collection> {
        let at = self.ongoing.iter().position(|collection| collection.thread == thread)?;
        Some(self.ongoing.remove(at))
    }

    /// For the next instrument, if there is one.
    fn keep(&mut self, collection: Collection) {
        if collection.last + 1 == self.instruments {
            return;
        }
        if self.ongoing.len() == COLLECTIONS_MAX {
            // As a rule its thread is gone: a view may have dropped the last instrument.
            self.ongoing.remove(0);
        }
        self.ongoing.push(collection);
    }
}

impl Scrape {
    fn push<T>(&self, state: &State, family: usize, push: PushPoints<T>, points: &mut Points<T>) {
        let family = &state.families[family];
        // A series that was registered after the scrape is not in it.
        let is_in = |series: &&Series| match series.instrument {
            Instrument::Gauge(_) => series.at < self.gauges.len(),
            _ => series.at < self.values.len(),
        };
        family.series.iter().filter(is_in).for_each(|series| push(self, family, series, points));
    }
}

fn attributes(family: &Family, series: &Series) -> Vec<KeyValue> {
    let pairs = name::pairs(family.labels(series)).into_iter();
    pairs.map(|(label, value)| KeyValue::new(label, value)).collect()
}

fn push_counter(scrape: &Scrape, family: &Family, series: &Series, points: &mut Points<u64>) {
    points.push((scrape.values[series.at] as u64, attributes(family, series)));
}

fn push_gauge(scrape: &Scrape, family: &Family, series: &Series, points: &mut Points<f64>) {
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

/// As OpenTelemetry has it, of the names that Prometheus accepts. A histogram's suffix is left room for.
fn is_instrument_name(name: &str) -> bool {
    const LONGEST: usize = 255 - "_bucket".len();
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !name.contains(':')
        && name.len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use ::opentelemetry::metrics::{MeterProvider as _, noop::NoopMeterProvider};

    use super::*;

    /// An instrument that keeps what it was points last.
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

    /// Two readers ask one instrument each in turn, and the counters grow between any two.
    #[test]
    fn collections_of_two_threads_are_each_of_one_instant() {
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
            // All rounds first, so that neither waits for the other for ever.
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

    /// However long it takes, and whatever came before it.
    #[test]
    fn each_collection_begins_with_a_scrape_of_its_own() {
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
        // The last of the second is not asked.
        let all = [0, 1, 2, 0, 1, 0, 1, 2].map(ask);
        assert_eq!(all, [0, 0, 0, 3, 3, 5, 5, 5].map(Some));
    }

    /// A scrape that panics leaves nothing of the collection before it to the instruments that come after.
    #[test]
    fn nothing_is_told_twice_after_a_panic() {
        let registry = Registry::new();
        let observer = observer(&registry);
        let _callbacks = [(); 3].map(|()| observer.callback(push_counter));
        let ask = |instrument: usize| {
            let _ = scrape_for(instrument, &observer.collections, || scrape(&registry));
            registry.state().scrapes
        };
        assert_eq!([0, 1].map(ask), [1, 1]);
        let failing = || scrape_for(0, &observer.collections, || panic!("as planned"));
        catch_unwind(AssertUnwindSafe(failing)).unwrap_err();
        assert_eq!([1, 2].map(ask), [2, 2]);
    }

    #[test]
    fn threads_that_are_gone_leave_little() {
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
