//! Series as OpenTelemetry collects them.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use opentelemetry::{KeyValue, metrics::MeterProvider as _};
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, InMemoryMetricExporterBuilder, SdkMeterProvider, Temporality,
    data::{AggregatedMetrics, MetricData},
};
use thiscpu_metrics::{Error, Registry};

/// Collects, and returns the values of an instrument, sorted by attributes.
fn collected(
    provider: &SdkMeterProvider,
    exporter: &InMemoryMetricExporter,
    instrument: &str,
) -> Vec<(String, f64)> {
    exporter.reset();
    provider.force_flush().unwrap();
    values(exporter, instrument)
}

/// Collects, and returns the sum of the values of each instrument.
fn collected_sums<const N: usize>(
    (provider, exporter): &(SdkMeterProvider, InMemoryMetricExporter),
    instruments: [&str; N],
) -> [f64; N] {
    exporter.reset();
    provider.force_flush().unwrap();
    instruments.map(|instrument| values(exporter, instrument).iter().map(|point| point.1).sum())
}

/// Returns the values of an instrument in the last collection, sorted by attributes.
fn values(exporter: &InMemoryMetricExporter, instrument: &str) -> Vec<(String, f64)> {
    let all = exporter.get_finished_metrics().unwrap();
    let metrics = all.iter().flat_map(|all| all.scope_metrics()).flat_map(|scope| scope.metrics());
    let mut values = Vec::new();
    for metric in metrics.filter(|metric| metric.name() == instrument) {
        match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                assert!(sum.is_monotonic());
                let points = sum.data_points();
                values.extend(points.map(|p| (text(p.attributes()), p.value() as f64)));
            }
            AggregatedMetrics::F64(MetricData::Sum(sum)) => {
                assert!(!sum.is_monotonic(), "observations may be negative");
                let points = sum.data_points();
                values.extend(points.map(|p| (text(p.attributes()), p.value())));
            }
            AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
                let points = gauge.data_points();
                values.extend(points.map(|p| (text(p.attributes()), p.value())));
            }
            other => panic!("{other:?}"),
        }
    }
    values.sort_by(|one, other| one.0.cmp(&other.0));
    values
}

fn text<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
    let mut all: Vec<_> = attributes.map(|pair| format!("{}={}", pair.key, pair.value)).collect();
    all.sort();
    all.join(" ")
}

#[test]
fn collection_has_the_current_values() {
    let registry = Registry::builder().buckets_for("size", &[1.0]).build().unwrap();
    let hits = registry.counter("hits", "Hits.", &[("path", "a \"b\"")]).unwrap();
    let size = registry.histogram("size", "", &[]).unwrap();
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let mut observer = registry.observe(&provider.meter("test"));
    let level = registry.gauge("level", "", &[]).unwrap();
    observer.update();
    let values_of = |instrument| collected(&provider, &exporter, instrument);
    let one = |value: f64| vec![(String::new(), value)];
    for round in 1..=3 {
        hits.increment(2);
        level.set(f64::from(round) + 0.5);
        size.record(0.75);
        size.record(2.0);
        let round = f64::from(round);
        assert_eq!(values_of("hits_total"), [("path=a \"b\"".to_owned(), 2.0 * round)]);
        assert_eq!(values_of("level"), one(round + 0.5));
        assert_eq!(values_of("size_count"), one(2.0 * round));
        assert_eq!(values_of("size_sum"), one(2.75 * round));
        let buckets = [("le=+Inf".to_owned(), 2.0 * round), ("le=1.0".to_owned(), round)];
        assert_eq!(values_of("size_bucket"), buckets);
    }
    size.record(-10.0);
    assert_eq!(values_of("size_sum"), one(-1.75));
    // A new series of a known metric needs no update.
    registry.counter("hits", "", &[]).unwrap().increment(1);
    assert_eq!(values_of("hits_total")[0], (String::new(), 1.0));
}

/// Metrics that are registered before or after them are still observed.
#[test]
fn names_invalid_in_opentelemetry_are_skipped() {
    let registry = Registry::new();
    let (colon, long) = ("job:hits_total", format!("{}_total", "x".repeat(243)));
    for name in ["before_total", colon, "_x_total", &long, "after_total"] {
        registry.counter(name, "", &[]).unwrap().increment(7);
    }
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let mut observer = registry.observe(&provider.meter("test"));
    registry.counter("later_total", "", &[]).unwrap().increment(7);
    observer.update();
    for name in ["before_total", "after_total", "later_total"] {
        assert_eq!(collected(&provider, &exporter, name), [(String::new(), 7.0)], "{name}");
    }
    let skipped = [colon, "_x_total", &long]
        .map(|name| Error::InvalidOpenTelemetryName { name: name.to_owned() });
    assert_eq!(observer.skipped(), skipped);
    assert!(skipped[0].to_string().contains(colon));
    // Prometheus allows these names.
    assert_eq!(registry.rejected(), []);
}

/// Registers metrics of one name again and again, of both kinds.
#[test]
fn metric_that_comes_again_has_one_instrument() {
    let registry = Registry::new();
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let mut observer = registry.observe(&provider.meter("test"));
    let values = || collected(&provider, &exporter, "x_total");
    for round in 1..=3 {
        let counter = registry.counter("x", "", &[("round", &round.to_string())]).unwrap();
        counter.increment(round);
        registry.gauge(":skipped", "", &[]).unwrap();
        observer.update();
        assert_eq!(values(), [(format!("round={round}"), round as f64)]);
        assert_eq!(observer.skipped().len(), 1);
        assert!(registry.remove_handle(counter) && registry.remove(":skipped", &[]));
        // The counter's instrument has no value of a gauge.
        let gauge = registry.gauge("x_total", "", &[]).unwrap();
        gauge.set(0.5);
        if round == 1 {
            assert_eq!(values(), []);
        }
        observer.update();
        assert_eq!(values(), [(String::new(), 0.5)]);
        assert!(registry.remove_handle(gauge));
    }
    assert_eq!(values(), []);
}

#[test]
fn accounts_have_all_of_their_labels() {
    let registry = Registry::new();
    let ledger = thiscpu::Ledger::<1>::new();
    let account = ledger.open();
    account.charge(0, 7);
    let top = thiscpu_metrics::TopAccounts::new(&ledger, 0, 1, "tenant", |_| "{a}".to_owned());
    registry.register_with("bytes", "", &[("kind", "tcp")], top).unwrap();
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let _observer = registry.observe(&provider.meter("test"));
    let wanted = [("kind=tcp tenant={a}".to_owned(), 7.0)];
    assert_eq!(collected(&provider, &exporter, "bytes"), wanted);
}

/// Returns an exporter of this temporality, and a provider for it alone.
fn provider_of(temporality: Temporality) -> (SdkMeterProvider, InMemoryMetricExporter) {
    let exporter = InMemoryMetricExporterBuilder::new().with_temporality(temporality).build();
    (SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build(), exporter)
}

/// Threads increment while two readers collect, each with a provider.
#[test]
fn deltas_are_exact_under_load() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 100_000;
    let registry = Registry::builder().buckets_for("size", &[1.0]).build().unwrap();
    let hits = registry.counter("hits", "", &[]).unwrap();
    let size = registry.histogram("size", "", &[]).unwrap();
    let [delta, cumulative] = [Temporality::Delta, Temporality::Cumulative].map(provider_of);
    let _observers = [&delta, &cumulative].map(|of| registry.observe(&of.0.meter("test")));
    let names = ["hits_total", "size_count", "size_bucket"];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let deltas = scope.spawn(|| {
            let mut sums = [0.0; 3];
            let mut collect = || {
                let values = collected_sums(&delta, names);
                assert!(values.iter().all(|&value| value >= 0.0));
                std::iter::zip(&mut sums, values).for_each(|(sum, value)| *sum += value);
            };
            while !is_over.load(SeqCst) {
                collect();
            }
            collect();
            sums
        });
        let totals = scope.spawn(|| {
            let mut before = [0.0; 3];
            while !is_over.load(SeqCst) {
                let values = collected_sums(&cumulative, names);
                assert!(std::iter::zip(before, values).all(|(before, value)| before <= value));
                before = values;
            }
            collected_sums(&cumulative, names)
        });
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    (0..ROUNDS).for_each(|round| {
                        hits.increment(2);
                        size.record((round % 3) as f64);
                    });
                });
            }
        });
        is_over.store(true, SeqCst);
        let records = (THREADS * ROUNDS) as f64;
        // Buckets are cumulative: two of three values are at most 1.
        let at_most_one = (THREADS * (ROUNDS - ROUNDS / 3)) as f64;
        let wanted = [2.0 * records, records, records + at_most_one];
        assert_eq!(deltas.join().unwrap(), wanted);
        assert_eq!(totals.join().unwrap(), wanted);
    });
}

// A series that goes away and comes back would be counted twice, or less than zero times.
#[test]
fn deltas_are_exact_when_series_come_and_go() {
    let registry = Registry::new();
    let delta = provider_of(Temporality::Delta);
    let mut observer = registry.observe(&delta.0.meter("test"));
    let kept = registry.counter("kept", "", &[]).unwrap();
    observer.update();
    let mut sums = [0.0; 2];
    let mut added = 0;
    for round in 1..=20 {
        let short = registry.counter("short", "", &[("a", "b")]).unwrap();
        observer.update();
        kept.increment(100 + round);
        short.increment(200 - round);
        added += round;
        // Before a removal, a collection makes all increments known.
        for _ in 0..2 {
            let values = collected_sums(&delta, ["kept_total", "short_total"]);
            std::iter::zip(&mut sums, values).for_each(|(sum, value)| *sum += value);
        }
        assert_eq!(sums, [100 * round + added, 200 * round - added].map(|sum| sum as f64));
        assert!(registry.remove_handle(kept.clone()) && registry.remove_handle(short));
        match round % 3 {
            0 => assert_eq!(collected_sums(&delta, ["kept_total", "short_total"]), [0.0; 2]),
            1 => assert!(!registry.render().contains("kept")),
            _ => {}
        }
    }
}

// An account that leaves the top and comes back would be counted twice in deltas.
#[test]
fn top_accounts_are_gauges() {
    let registry = Registry::new();
    let ledger = thiscpu::Ledger::<1>::new();
    let accounts = [ledger.open(), ledger.open()];
    let top = thiscpu_metrics::TopAccounts::new(&ledger, 0, 1, "tenant", |id| id.to_string());
    registry.register("bytes_total", top).unwrap();
    let (provider, exporter) = provider_of(Temporality::Delta);
    let _observer = registry.observe(&provider.meter("test"));
    let mut values = [5, 0];
    accounts[0].charge(0, 5);
    for round in 1..=10 {
        accounts[round / 2 % 2].charge(0, 10);
        values[round / 2 % 2] += 10;
        let points = collected(&provider, &exporter, "bytes_total");
        let largest = *values.iter().max().unwrap();
        assert_eq!(points.iter().map(|p| p.1).collect::<Vec<_>>(), [f64::from(largest)]);
    }
}
