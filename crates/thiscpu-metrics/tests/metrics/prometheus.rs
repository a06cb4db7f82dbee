//! Prometheus itself scrapes the endpoint, and its API gives the exact numbers back.

use std::thread;

use thiscpu_metrics::Registry;
use thiscpu_test_support::prometheus::Prometheus;

#[test]
fn prometheus_has_the_exact_values() {
    // Prometheus takes seconds to start.
    if thiscpu_test_support::is_quick() || !thiscpu_test_support::has("prometheus", "prometheus") {
        return;
    }
    let registry = Registry::builder().buckets_for("time_seconds", &[0.5, 1.0]).build().unwrap();
    let hits = registry.counter("hits", "Hits.", &[("path", "/a b")]).unwrap();
    let level = registry.gauge("level", "", &[]).unwrap();
    let time = registry.histogram("time_seconds", "", &[]).unwrap();
    let endpoint = registry.serve("127.0.0.1:0").unwrap();
    let prometheus = Prometheus::start(endpoint.address());
    prometheus.wait_for("a scrape", || prometheus.value("hits_total").is_some());

    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50_000).for_each(|_| hits.increment(1)));
        }
    });
    hits.increment((1 << 53) - 1 - 200_000);
    hits.increment_with_exemplar(1, &[("trace_id", "abc")]).unwrap();
    level.set(-2.75);
    [0.25, 0.75, 3.0].iter().for_each(|&seconds| time.record(seconds));

    let all = [
        ("hits_total", (1_u64 << 53) as f64),
        ("level", -2.75),
        ("time_seconds_count", 3.0),
        ("time_seconds_sum", 4.0),
        ("time_seconds_bucket{le=%220.5%22}", 1.0),
        ("time_seconds_bucket{le=%221.0%22}", 2.0),
        ("time_seconds_bucket{le=%22%2BInf%22}", 3.0),
    ];
    for (name, value) in all {
        let wanted = format!("{name} {value}");
        prometheus.wait_for(&wanted, || prometheus.value(name) == Some(value));
    }
    let exemplars = prometheus.ask("query_exemplars?query=hits_total&start=0&end=9999999999");
    let exemplar = &exemplars.unwrap()[0]["exemplars"][0];
    assert_eq!(exemplar["labels"]["trace_id"], "abc", "only OpenMetrics has exemplars");

    // Its staleness marker comes with the next scrape.
    assert!(registry.remove("hits", &[("path", "/a b")]));
    prometheus.wait_for("no series", || prometheus.value("hits_total").is_none());
    assert_eq!(prometheus.value("level"), Some(-2.75));
}
