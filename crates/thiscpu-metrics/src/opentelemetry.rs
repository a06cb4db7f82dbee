//! The same series for OpenTelemetry: observable instruments, whose callbacks read the registry.
//!
//! A meter asks each instrument by itself. One scrape serves all of them: an instrument that is asked for the first time since the last scrape
//! gets what that found; one that is asked again begins a new scrape, because then its reader has begun to collect again. With several readers, or a view that
//! drops instruments, some may be asked less often than others, so what a scrape found is used for a second at most.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ::opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Meter},
};

use crate::{
    error::{Error, Kind},
    histogram::BILLION,
    name,
    registry::{Reading, Registry},
    state::{Family, Instrument, Series, State},
};

/// How long what a scrape found is used.
const KEPT: Duration = Duration::from_secs(1);

/// A registry's metrics as observable instruments of a meter: see [`Registry::observe`]. To drop it ends nothing; a meter's instruments
/// are there for as long as the meter's provider.
#[derive(Debug)]
pub struct Observer {
    registry: Registry,
    meter: Meter,
    found: Arc<Mutex<Found>>,
    /// How many of the registry's families have instruments: the first so many.
    families: usize,
}

/// What the last scrape found, and who was told.
#[derive(Debug, Default)]
struct Found {
    last: Option<Arc<Scrape>>,
    told: Vec<bool>,
}

#[derive(Debug)]
struct Scrape {
    values: Vec<i64>,
    gauges: Vec<f64>,
    begun: Instant,
}

/// What an instrument is told of a series: values, with the attributes of each.
type Told<T> = Vec<(T, Vec<KeyValue>)>;

/// What becomes of a series.
type Tell<T> = fn(&Scrape, &Family, &Series, &mut Told<T>);

impl Registry {
    /// Makes an observable instrument of `meter` for each metric that is registered: counters and gauges as they are; of a histogram `X` the counters
    /// `X_bucket` (cumulative, with an attribute `le` for each bound), `X_count` and `X_sum`, because there are no histograms that are observed. What is
    /// registered later is there after [`Observer::update`]; new series of known metrics are there at once.
    ///
    /// Each collection takes one scrape, for all instruments: one fence, each value exact, series of a group of one instant.
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
    /// registry.observe(&provider.meter("server"))?;
    ///
    /// requests.increment(3);
    /// provider.force_flush()?;
    /// assert_eq!(exporter.get_finished_metrics()?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If OpenTelemetry has no such names: they begin with a letter, have no `:`, and 248 characters at most.
    pub fn observe(&self, meter: &Meter) -> Result<Observer, Error> {
        let (registry, meter, found) = (self.clone(), meter.clone(), Arc::default());
        let mut observer = Observer { registry, meter, found, families: 0 };
        observer.update()?;
        Ok(observer)
    }
}

impl Observer {
    /// Makes instruments for metrics that were registered since the last call. Not from an instrument's callback.
    ///
    /// # Errors
    ///
    /// As [`Registry::observe`]; then none of them has an instrument.
    pub fn update(&mut self) -> Result<(), Error> {
        // The registry's lock is not held while instruments are made: the meter has locks too, which it holds while it calls us.
        let new: Vec<(String, String, Kind)> = {
            let state = self.registry.state();
            let each = |family: &Family| (family.name.clone(), family.help.clone(), family.kind);
            state.families[self.families..].iter().map(each).collect()
        };
        if let Some((name, ..)) = new.iter().find(|(name, ..)| !is_instrument_name(name)) {
            return Err(Error::NotForOpenTelemetry { name: name.clone() });
        }
        for (name, help, kind) in new {
            self.make(&name, &help, kind);
            self.families += 1;
        }
        Ok(())
    }

    /// Makes the next family's instruments.
    fn make(&self, name: &str, help: &str, kind: Kind) {
        let (meter, help) = (&self.meter, help.to_owned());
        let whole = |name: String, tell| {
            let builder = meter.u64_observable_counter(name).with_description(help.clone());
            let _ = builder.with_callback(self.callback(tell)).build();
        };
        match kind {
            Kind::Counter => whole(name.to_owned(), tell_counter),
            Kind::Gauge => {
                let builder = meter.f64_observable_gauge(name.to_owned()).with_description(help);
                let _ = builder.with_callback(self.callback(tell_gauge)).build();
            }
            Kind::Histogram => {
                whole(format!("{name}_bucket"), tell_buckets);
                whole(format!("{name}_count"), tell_count);
                let builder = meter.f64_observable_counter(format!("{name}_sum"));
                let builder = builder.with_description(help);
                let _ = builder.with_callback(self.callback(tell_sum)).build();
            }
        }
    }

    /// A callback of the next family's next instrument.
    fn callback<T: Copy + 'static>(
        &self,
        tell: Tell<T>,
    ) -> impl Fn(&dyn AsyncInstrument<T>) + Send + Sync + 'static {
        let (registry, found, family) =
            (self.registry.clone(), Arc::clone(&self.found), self.families);
        let instrument = lock(&found).join();
        move |observer| {
            // A panic (of a fence that cannot be had) must not reach the meter, which would be unusable from then on. It has been reported.
            let scrape = || lock(&found).scrape_for(instrument, &registry);
            let Ok(scrape) = catch_unwind(AssertUnwindSafe(scrape)) else { return };
            let mut told = Vec::new();
            scrape.tell(&registry.state(), family, tell, &mut told);
            // No lock of ours is held: the observer has its own.
            told.iter().for_each(|(value, attributes)| observer.observe(*value, attributes));
        }
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Found {
    /// The number of a new instrument.
    fn join(&mut self) -> usize {
        self.told.push(false);
        self.told.len() - 1
    }

    /// What `instrument` is to be told.
    fn scrape_for(&mut self, instrument: usize, registry: &Registry) -> Arc<Scrape> {
        let is_fresh = |scrape: &&Arc<Scrape>| scrape.begun.elapsed() < KEPT;
        let is_told = std::mem::replace(&mut self.told[instrument], true);
        if let Some(scrape) = self.last.as_ref().filter(is_fresh).filter(|_| !is_told) {
            return Arc::clone(scrape);
        }
        let begun = Instant::now();
        let Reading { values, gauges, .. } = registry.read();
        let scrape = Arc::new(Scrape { values, gauges, begun });
        self.last = Some(Arc::clone(&scrape));
        self.told.fill(false);
        self.told[instrument] = true;
        scrape
    }
}

impl Scrape {
    fn tell<T>(&self, state: &State, family: usize, tell: Tell<T>, told: &mut Told<T>) {
        let family = &state.families[family];
        // A series that was registered after the scrape is not in it.
        let is_in = |series: &&Series| match series.instrument {
            Instrument::Gauge(_) => series.at < self.gauges.len(),
            _ => series.at < self.values.len(),
        };
        family.series.iter().filter(is_in).for_each(|series| tell(self, family, series, told));
    }
}

fn attributes(family: &Family, series: &Series) -> Vec<KeyValue> {
    let pairs = name::pairs(family.labels(series)).into_iter();
    pairs.map(|(label, value)| KeyValue::new(label, value)).collect()
}

fn tell_counter(scrape: &Scrape, family: &Family, series: &Series, told: &mut Told<u64>) {
    told.push((scrape.values[series.at] as u64, attributes(family, series)));
}

fn tell_gauge(scrape: &Scrape, family: &Family, series: &Series, told: &mut Told<f64>) {
    told.push((scrape.gauges[series.at], attributes(family, series)));
}

fn tell_buckets(scrape: &Scrape, family: &Family, series: &Series, told: &mut Told<u64>) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let mut count = 0_u64;
    for (bound, &inside) in histogram.0.bounds().texts().zip(&scrape.values[series.at..]) {
        count = count.wrapping_add(inside as u64);
        let mut attributes = attributes(family, series);
        attributes.push(KeyValue::new("le", bound.to_owned()));
        told.push((count, attributes));
    }
}

fn tell_count(scrape: &Scrape, family: &Family, series: &Series, told: &mut Told<u64>) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let inside = scrape.values[series.at..].iter().take(histogram.0.bounds().buckets());
    let count = inside.fold(0_u64, |count, &inside| count.wrapping_add(inside as u64));
    told.push((count, attributes(family, series)));
}

fn tell_sum(scrape: &Scrape, family: &Family, series: &Series, told: &mut Told<f64>) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let at = series.at + histogram.0.bounds().buckets();
    let [whole, billionths] = [scrape.values[at], scrape.values[at + 1]];
    let sum = whole as f64 + billionths as f64 / BILLION as f64;
    told.push((sum, attributes(family, series)));
}

/// As OpenTelemetry has it, of the names that Prometheus accepts. A histogram's suffix is left room for.
fn is_instrument_name(name: &str) -> bool {
    const LONGEST: usize = 255 - "_bucket".len();
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !name.contains(':')
        && name.len() <= LONGEST
}
