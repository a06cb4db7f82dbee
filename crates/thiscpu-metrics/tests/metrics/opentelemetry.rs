//! Series as OpenTelemetry collects them.

use opentelemetry::{KeyValue, metrics::MeterProvider as _};
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};
use thiscpu_metrics::{Error, Registry};

/// Returns the values that a reader has of an instrument, sorted by attributes.
fn collected(
    provider: &SdkMeterProvider,
    exporter: &InMemoryMetricExporter,
    instrument: &str,
) -> Vec<(String, f64)> {
    exporter.reset();
    provider.force_flush().unwrap();
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
        assert_eq!(values_of("hits"), [("path=a \"b\"".to_owned(), 2.0 * round)]);
        assert_eq!(values_of("level"), one(round + 0.5));
        assert_eq!(values_of("size_count"), one(2.0 * round));
        assert_eq!(values_of("size_sum"), one(2.75 * round));
        let buckets = [("le=+Inf".to_owned(), 2.0 * round), ("le=1".to_owned(), round)];
        assert_eq!(values_of("size_bucket"), buckets);
    }
    size.record(-10.0);
    assert_eq!(values_of("size_sum"), one(-1.75));
    // A new series of a known metric needs no update.
    registry.counter("hits", "", &[]).unwrap().increment(1);
    assert_eq!(values_of("hits")[0], (String::new(), 1.0));
}

/// Metrics that are registered before or after them are still observed.
#[test]
fn names_invalid_in_opentelemetry_are_skipped() {
    let registry = Registry::new();
    let (colon, long) = ("job:hits", "x".repeat(249));
    for name in ["before", colon, "_x", &long, "after"] {
        registry.counter(name, "", &[]).unwrap().increment(7);
    }
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let mut observer = registry.observe(&provider.meter("test"));
    registry.counter("later", "", &[]).unwrap().increment(7);
    observer.update();
    for name in ["before", "after", "later"] {
        assert_eq!(collected(&provider, &exporter, name), [(String::new(), 7.0)], "{name}");
    }
    let skipped =
        [colon, "_x", &long].map(|name| Error::InvalidOpenTelemetryName { name: name.to_owned() });
    assert_eq!(observer.skipped(), skipped);
    assert!(skipped[0].to_string().contains(colon));
    // Prometheus allows these names.
    assert_eq!(registry.rejected(), []);
}
