//! A scrape costs one fence. In a program of its own, because fences are counted per process.

use metrics::with_local_recorder;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use thiscpu::{__test_support, Tier};
use thiscpu_metrics::Registry;

/// Returns the number of fences that `body` takes.
fn fences(body: impl FnOnce()) -> u64 {
    let before = __test_support::fences();
    body();
    __test_support::fences() - before
}

/// Runs alone in its program, so that no other test takes fences at the same time.
#[test]
fn scrape_costs_one_fence() {
    // The atomic tier needs no fence.
    let one = u64::from(thiscpu::tier().unwrap() != Tier::Atomic);
    let registry = Registry::builder().group("g", &["in", "out"]).build().unwrap();
    let gauges: Vec<_> =
        (0..10).map(|i| registry.gauge(&format!("set{i}"), "", &[]).unwrap()).collect();
    let set = || gauges.iter().for_each(|gauge| gauge.set(2.5));
    assert_eq!(fences(|| (0..100).for_each(|_| set())), 0, "gauges that are only set");
    assert_eq!(fences(|| drop(registry.render())), 0, "a scrape of such gauges");

    // All kinds, in per-CPU mode.
    with_local_recorder(&registry.recorder(), || {
        for _ in 0..1_000 {
            for label in ["x", "y"] {
                for name in ["own", "in", "out"] {
                    metrics::counter!(name, "label" => label).increment(1);
                }
                metrics::gauge!("gauge", "label" => label).increment(1.0);
                metrics::histogram!("histogram", "label" => label).record(1.5);
            }
        }
    });
    set();
    for _ in 0..3 {
        assert_eq!(fences(|| drop(registry.render())), one, "a scrape");
    }

    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter).build();
    registry.observe(&provider.meter("test"));
    for _ in 0..3 {
        assert_eq!(fences(|| provider.force_flush().unwrap()), one, "a collection");
    }
}
