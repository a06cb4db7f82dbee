//! Series of the layers.

use thiscpu_metrics::Registry;
use thiscpu_tower::{ConcurrencyLimitLayer, KeyedLimitLayer, LoadShedLayer};
use tower::Layer;

use crate::common::{Endless, is_ready, refusal, start};

/// Asserts that a scrape has these lines.
fn assert_shows(registry: &Registry, lines: &[&str]) {
    let text = registry.render();
    for line in lines {
        assert!(text.lines().any(|it| it == *line), "{line:?} is not in:\n{text}");
    }
}

#[test]
fn concurrency_limit_shows_requests_and_waiting_services() {
    let registry = Registry::new();
    let layer = ConcurrencyLimitLayer::new(1);
    layer.register(&registry, "x", &[("route", "a")]).unwrap();
    let mut service = layer.layer(Endless);
    let _request = start(&mut service, ()).unwrap();
    let mut waiting = service.clone();
    assert!(!is_ready(&mut waiting));
    let lines = ["x_limit{route=\"a\"} 1", "x_held{route=\"a\"} 1", "x_waiters{route=\"a\"} 1"];
    assert_shows(&registry, &lines);
}

#[test]
fn load_shed_shows_requests_and_refusals() {
    let registry = Registry::new();
    let layer = LoadShedLayer::new(10).cost(|units: &u64| *units);
    layer.register(&registry, "x", &[]).unwrap();
    let mut service = layer.layer(Endless);
    let _request = start(&mut service, 7).unwrap();
    refusal(start(&mut service, 4));
    assert_shows(&registry, &["x_limit 10", "x_held 7", "x_refused_total 1"]);
}

#[test]
fn keyed_limit_shows_all_keys_together() {
    let registry = Registry::new();
    let layer = KeyedLimitLayer::new(1, |key: &u64| *key);
    layer.budgets().register(&registry, "x", &[("kind", "b")]).unwrap();
    let mut service = layer.layer(Endless);
    let _requests = [1, 2, 3].map(|key| start(&mut service, key).unwrap());
    refusal(start(&mut service, 2));
    let lines = [
        "x_keys{kind=\"b\"} 3",
        "x_limit{kind=\"b\"} 1",
        "x_held{kind=\"b\"} 3",
        "x_refused_total{kind=\"b\"} 1",
    ];
    assert_shows(&registry, &lines);
}

#[test]
fn failed_registration_leaves_no_series() {
    let registry = Registry::new();
    let _taken = registry.gauge("x_held", "", &[]).unwrap();
    let before = registry.render();
    LoadShedLayer::new(1).register(&registry, "x", &[]).unwrap_err();
    let keyed = KeyedLimitLayer::new(1, |key: &u64| *key);
    keyed.budgets().register(&registry, "x", &[]).unwrap_err();
    assert_eq!(registry.render(), before);
}
