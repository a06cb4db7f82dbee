//! Prometheus itself scrapes a live exporter, while workers add and are killed.

use thiscpu_test_support::prometheus::Prometheus;
use thiscpu_test_support::{has, is_quick};

use crate::fixture::{Exporter, Place, Worker, requests};

#[test]
fn prometheus_has_the_right_total_after_workers_were_killed() {
    // Prometheus takes seconds to start.
    if is_quick() || !has("prometheus", "prometheus") {
        return;
    }
    let place = Place::new();
    let path = place.path("shop");
    let segment = place.create("shop");
    let workers: Vec<_> = (0..3).map(|_| Worker::start("add", &path)).collect();
    let holder = Worker::start("hold", &path);
    let exporter = Exporter::start(&[&path], &[]);
    let prometheus = Prometheus::start(exporter.address);
    prometheus.wait_for("a scrape", || prometheus.value("sum(requests_total)").is_some());
    for worker in workers {
        worker.kill();
    }
    let total = requests(&segment, "/first").sum() + requests(&segment, "/second").sum();
    assert!(total >= 6000);
    drop(segment);
    // No process uses the segment any more, except one that holds units.
    let wanted = format!("the total {total}");
    prometheus.wait_for(&wanted, || prometheus.value("sum(requests_total)") == Some(total as f64));
    let held = "thiscpu_budget_held{budget=%22connections%22}";
    prometheus.wait_for("units", || prometheus.value(held) == Some(30.0));
    holder.kill();
    let ended = "thiscpu_segment_participants{state=%22ended%22}";
    prometheus.wait_for("a participant that has ended", || prometheus.value(ended) == Some(1.0));
    assert_eq!(prometheus.value("up"), Some(1.0));
}
