//! Series for OpenTelemetry: observable instruments, whose callbacks read the registry.
//!
//! A meter calls the callback of each instrument separately. It does not say when a collection
//! begins or which reader it is for. But one thread makes a collection, and calls the callbacks in
//! the order in which they were registered. So instruments have numbers. If a thread asks an
//! instrument whose number is not greater than the last one it asked, it has begun a new
//! collection. That takes a scrape, which serves the thread until its next collection or its last
//! instrument. Collections of different threads are independent.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use ::opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::{
    error::{Error, Kind},
    family::Family,
    points::{
        self, Observed, PushPoints, push_buckets, push_count, push_counter, push_gauge, push_sum,
    },
    reading::Values,
    registry::Registry,
    shown::Number,
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
    /// The families before this number have instruments, or are in `skipped`.
    families: u64,
    /// The names and kinds that have instruments or were skipped, as a name may come again.
    known: BTreeSet<(String, &'static str)>,
    skipped: Vec<Error>,
}

/// A family that has no instrument yet.
struct New {
    name: String,
    help: String,
    kind: Kind,
    /// Whether its series differ from scrape to scrape.
    has_samples: bool,
}

impl New {
    fn of(family: &Family) -> New {
        New {
            name: family.name.clone(),
            help: family.help.clone(),
            kind: family.kind,
            has_samples: family.samples.is_some(),
        }
    }
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
    scrape: Arc<Values>,
}

impl Registry {
    /// Makes observable instruments of `meter` for all registered metrics.
    ///
    /// - A counter and a gauge become instruments of their names.
    /// - A histogram `X` becomes the counters `X_bucket` (cumulative, with an attribute `le` for
    ///   each bound) and `X_count`, and the up-down counter `X_sum`, because observations may be
    ///   negative. OpenTelemetry has no observable histograms.
    /// - Accounts of [`TopAccounts`](crate::TopAccounts) become gauges, because an account that
    ///   leaves and comes back would be counted twice in deltas.
    ///
    /// Metrics that are registered later get instruments by [`Observer::update`]. New series of
    /// known metrics need no update.
    ///
    /// Each collection takes one scrape for all instruments. So it costs one fence, each value is
    /// exact, and series of a group are of one instant.
    ///
    /// Deltas are exact: together they are the increments so far. A series that is removed or idle
    /// is observed until nobody has a handle of it. One collection leaves out a new series that has
    /// the labels of a series that was freed; the next one has its whole value.
    ///
    /// Readers of one provider share their instruments' values: each collection of one gives its
    /// values to all. To read groups at one instant, or exact deltas of series that are removed,
    /// with several readers, give each a provider, and call this method for its meter.
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
        let mut observer = Observer::new(self.clone(), meter.clone());
        observer.update();
        observer
    }
}

impl Observer {
    /// Returns an observer without instruments.
    fn new(registry: Registry, meter: Meter) -> Observer {
        let (collections, known, skipped) = Default::default();
        Observer { registry, meter, collections, families: 0, known, skipped }
    }

    /// Makes instruments for metrics that were registered since the last call.
    ///
    /// A metric whose series were removed keeps its instrument, which shows the series of a later
    /// metric of that name and kind.
    ///
    /// Must not be called from an instrument's callback.
    pub fn update(&mut self) {
        // The registry's lock is not held while instruments are made. The meter holds its own locks
        // while it calls the callbacks, which lock the registry.
        let new: Vec<(u64, New)> = {
            let state = self.registry.state();
            let each = |(&number, family): (&u64, &Family)| (number, New::of(family));
            state.families.range(self.families..).map(each).collect()
        };
        for (number, new) in new {
            self.families = number + 1;
            if !self.known.insert((new.name.clone(), new.kind.as_str())) {
                continue;
            }
            if is_instrument_name(&new.name) {
                self.make(&new);
            } else {
                self.skipped.push(Error::InvalidOpenTelemetryName { name: new.name });
            }
        }
    }

    /// Returns an error for each metric that has no instrument, because of its name.
    #[must_use]
    pub fn skipped(&self) -> &[Error] {
        &self.skipped
    }

    /// Makes the instruments of a family.
    fn make(&self, new: &New) {
        let New { name, help, kind, has_samples } = new;
        let (meter, help, key) = (&self.meter, help.to_owned(), (name.as_str(), *kind));
        let whole = |name: String, push| {
            let builder = meter.u64_observable_counter(name).with_description(help.clone());
            let _ = builder.with_callback(self.callback(key, push)).build();
        };
        match kind {
            Kind::Counter if !has_samples => whole(name.to_owned(), push_counter),
            // Accounts leave and come back, which would be counted twice in deltas.
            Kind::Counter | Kind::Gauge => {
                let builder = meter.f64_observable_gauge(name.to_owned()).with_description(help);
                let _ = builder.with_callback(self.callback(key, push_gauge)).build();
            }
            Kind::Histogram => {
                whole(format!("{name}_bucket"), push_buckets);
                whole(format!("{name}_count"), push_count);
                // An up-down counter, because observations may be negative.
                let builder = meter.f64_observable_up_down_counter(format!("{name}_sum"));
                let builder = builder.with_description(help);
                let _ = builder.with_callback(self.callback(key, push_sum)).build();
            }
        }
    }

    /// Returns a callback for the next instrument, of the families of a name and a kind.
    fn callback<T: Copy + From<Number> + 'static>(
        &self,
        (name, kind): (&str, Kind),
        push: PushPoints<T>,
    ) -> impl Fn(&dyn AsyncInstrument<T>) + Send + Sync + 'static + use<T> {
        let (registry, collections, name) =
            (self.registry.clone(), Arc::clone(&self.collections), name.to_owned());
        let instrument = lock(&collections).add_instrument();
        let observed = Mutex::new(Observed::new());
        move |observer| {
            // A panic, when a fence is denied, must not reach the meter: it would poison the
            // meter's locks. The panic hook has reported it.
            let scrape = || scrape_for(instrument, &collections, || scrape(&registry));
            let Ok(scrape) = catch_unwind(AssertUnwindSafe(scrape)) else { return };
            let mut points = Vec::new();
            {
                let (state, mut observed) = (registry.state(), lock(&observed));
                let key = (&*name, kind);
                points::push_all(&scrape, &state, key, push, &mut observed, &mut points);
            }
            // No lock of this crate is held here: the observer has its own locks.
            points.iter().for_each(|(value, attributes)| observer.observe(*value, attributes));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the scrape that `instrument` observes for this thread's collection.
fn scrape_for(
    instrument: usize,
    collections: &Mutex<Collections>,
    scrape: impl FnOnce() -> Arc<Values>,
) -> Arc<Values> {
    let thread = thread::current().id();
    // Removes the previous collection, even if the scrape panics.
    let known = lock(collections).take(thread).filter(|collection| collection.last < instrument);
    // Not under the lock, so that collections of other threads do not wait.
    let scrape = known.map_or_else(scrape, |collection| collection.scrape);
    lock(collections).keep(Collection { thread, last: instrument, scrape: Arc::clone(&scrape) });
    scrape
}

fn scrape(registry: &Registry) -> Arc<Values> {
    Arc::new(registry.read().values)
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

    use ::opentelemetry::{
        KeyValue,
        metrics::{MeterProvider as _, noop::NoopMeterProvider},
    };

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
        Observer::new(registry.clone(), NoopMeterProvider::new().meter("test"))
    }

    /// Interleaves the collections of two threads, and increments the counters in between.
    #[test]
    fn collections_of_two_threads_each_read_one_instant() {
        const ROUNDS: u64 = 100;
        let names = ["begun", "ended"];
        let registry = Registry::builder().group("g", &names).build().unwrap();
        let counters = names.map(|name| registry.counter(name, "", &[]).unwrap());
        let observer = observer(&registry);
        let callback =
            |name| observer.callback((&format!("{name}_total"), Kind::Counter), push_counter);
        let callbacks = names.map(callback);
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
        let callbacks =
            [(); 3].map(|()| observer.callback(("hits_total", Kind::Counter), push_counter));
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
        let _callbacks =
            [(); 3].map(|()| observer.callback(("hits_total", Kind::Counter), push_counter));
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
        let callbacks =
            [(); 2].map(|()| observer.callback(("hits_total", Kind::Counter), push_counter));
        for _ in 0..2 * COLLECTIONS_MAX {
            thread::scope(|scope| {
                scope.spawn(|| callbacks[0](&Last::default()));
            });
        }
        assert_eq!(lock(&observer.collections).ongoing.len(), COLLECTIONS_MAX);
    }

    #[test]
    fn metric_that_comes_again_makes_no_instrument() {
        let registry = Registry::new();
        let mut observer = observer(&registry);
        for _ in 0..3 {
            let gauge = registry.gauge("x", "", &[]).unwrap();
            let skipped = registry.gauge("_y", "", &[]).unwrap();
            observer.update();
            assert!(registry.remove_handle(gauge) && registry.remove_handle(skipped));
        }
        assert_eq!((lock(&observer.collections).instruments, observer.skipped.len()), (1, 1));
    }
}
