//! Series go away by handle, by labels, and when they are idle. No increment is lost.

use std::{sync::Arc, time::Duration};

use metrics::{counter, gauge, histogram, with_local_recorder};
use thiscpu_metrics::{Kind, Registry};

use crate::threads::value;

const ALL: [Kind; 3] = [Kind::Counter, Kind::Gauge, Kind::Histogram];

/// Returns the lines of samples.
fn samples(registry: &Registry) -> Vec<String> {
    let text = registry.render();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn removed_series_begins_again_at_zero() {
    let registry = Registry::builder().group("g", &["a", "b"]).build().unwrap();
    for round in 1..=3 {
        let own = registry.counter("own", "Own.", &[]).unwrap();
        let [a, b] = ["a", "b"].map(|name| registry.counter(name, "", &[]).unwrap());
        let level = registry.gauge("level", "", &[]).unwrap();
        let time = registry.histogram("time", "", &[]).unwrap();
        let kept = registry.counter("kept", "", &[("round", &round.to_string())]).unwrap();
        // On several CPUs.
        std::thread::scope(|scope| {
            for cpu in 0..2 {
                let [own, a, b, kept] = [&own, &a, &b, &kept];
                let (level, time) = (&level, &time);
                scope.spawn(move || {
                    thiscpu::__test_support::run_on(cpu);
                    for _ in 0..100 {
                        [own, a, b, kept].into_iter().for_each(|counter| counter.increment(1));
                        level.increment(1.0);
                        time.record(1.5);
                    }
                });
            }
        });
        level.increment(0.5);
        let text = registry.render();
        for (series, wanted) in [("own_total", 200.0), ("a_total", 200.0), ("b_total", 200.0)] {
            assert_eq!(value(&text, series), wanted, "{series}");
        }
        assert_eq!([value(&text, "level"), value(&text, "time_sum")], [200.5, 300.0]);
        assert!(registry.remove_handle(own) && registry.remove_handle(a));
        assert!(registry.remove_handle(b) && registry.remove_handle(level));
        assert!(registry.remove_handle(time));
        let all = samples(&registry);
        assert_eq!(all.len(), round, "{all:?}");
        assert!(all.iter().all(|line| line.starts_with("kept") && line.ends_with(" 200")));
    }
}

#[test]
fn removed_series_is_shown_again_if_a_handle_is_used() {
    let registry = Registry::new();
    let hits = registry.counter("hits", "", &[]).unwrap();
    let level = registry.gauge("level", "", &[]).unwrap();
    let time = registry.histogram("time", "", &[]).unwrap();
    hits.increment(5);
    level.set(2.5);
    time.record(1.0);
    assert!(registry.remove_handle(hits.clone()));
    assert!(registry.remove("level", &[]) && registry.remove("time", &[]));
    assert!(!registry.remove_handle(hits.clone()) && !registry.remove("level", &[]));
    assert_eq!(registry.render(), "");
    hits.increment(2);
    level.increment(1.0);
    time.record(1.0);
    let text = registry.render();
    assert_eq!(["hits_total", "level", "time_count"].map(|of| value(&text, of)), [7.0, 3.5, 2.0]);
    // Registering it again shows it as well.
    registry.remove("hits", &[]);
    assert!(!registry.render().contains("hits"));
    let again = registry.counter("hits", "", &[]).unwrap();
    again.increment(1);
    assert_eq!(value(&registry.render(), "hits_total"), 8.0);
    registry.counter("hits", "", &[]).unwrap_err();
    // Without handles, the next scrape frees it.
    registry.remove("hits", &[]);
    drop((hits, again));
    let _ = registry.render();
    assert_eq!(samples(&registry).len(), 15);
    registry.counter("hits", "", &[]).unwrap();
    assert_eq!(value(&registry.render(), "hits_total"), 0.0);
}

#[test]
fn handles_of_other_registries_remove_nothing() {
    let registries = [(); 2].map(|()| Registry::new());
    let handles = registries.each_ref().map(|registry| registry.counter("x", "", &[]).unwrap());
    let [first, second] = handles;
    assert!(!registries[1].remove_handle(first) && !registries[0].remove_handle(second));
    assert!(registries.iter().all(|registry| samples(registry) == ["x_total 0"]));
}

#[test]
fn series_are_removed_by_labels() {
    let registry = Registry::new();
    static COUNTER: thiscpu::Counter = thiscpu::Counter::new();
    for tenant in ["acme", "acme2", "x"] {
        let labels = [("tenant", tenant), ("method", "get")];
        registry.counter("requests", "", &labels).unwrap();
        registry.gauge("sessions", "", &[("tenant", tenant)]).unwrap();
        registry.register_with("own", "", &[("tenant", tenant)], &COUNTER).unwrap();
    }
    assert_eq!(registry.remove_matching(&[("tenant", "acme"), ("method", "put")]), 0);
    assert_eq!(registry.remove_matching(&[("tenant", "acme")]), 3);
    assert_eq!(registry.remove_matching(&[("tenant", "acme")]), 0);
    assert!(registry.remove("requests", &[("method", "get"), ("tenant", "x")]));
    assert!(registry.remove("own", &[("tenant", "x")]));
    assert!(
        !registry.remove("own", &[]) && !registry.remove("", &[]) && !registry.remove("a.b", &[])
    );
    let all = [
        "requests_total{method=\"get\",tenant=\"acme2\"} 0",
        "sessions{tenant=\"acme2\"} 0",
        "sessions{tenant=\"x\"} 0",
        "own{tenant=\"acme2\"} 0",
    ];
    let mut left = samples(&registry);
    left.sort();
    let mut wanted = all.map(str::to_owned);
    wanted.sort();
    assert_eq!(left, wanted);
}

#[test]
fn removed_structures_are_dropped_with_their_last_series() {
    let registry = Registry::new();
    let budget = Arc::new(thiscpu::Budget::new(5));
    registry.register("memory", Arc::clone(&budget)).unwrap();
    for removed in ["memory_limit", "memory_waiters", "memory_over_released_total"] {
        assert!(registry.remove(removed, &[]));
    }
    assert_eq!(samples(&registry), ["memory_held 0"]);
    assert!(registry.remove("memory_held", &[]));
    assert_eq!(Arc::strong_count(&budget), 1);
    registry.register("memory", budget).unwrap();
}

/// Uses a timeout of 0: a series is idle if it did not change between two scrapes.
#[test]
fn idle_series_go_away_until_they_are_used() {
    let registry = Registry::builder().idle_timeout(&ALL, Duration::ZERO).build().unwrap();
    let held = registry.counter("held", "", &[]).unwrap();
    let use_facade = || {
        with_local_recorder(&registry.recorder(), || {
            metrics::describe_counter!("hits", "Hits.");
            counter!("hits", "a" => "b").increment(1);
            gauge!("level").increment(1.0);
            histogram!("time").record(0.5);
        });
    };
    for round in 1..=3 {
        held.increment(1);
        use_facade();
        let text = registry.render();
        // The handle kept its series; the others begin again, with their help text.
        assert_eq!(value(&text, "held_total"), f64::from(round));
        assert!(text.contains("# HELP hits_total Hits.\n"), "{text}");
        let all = ["hits_total{a=\"b\"}", "level", "time_count"].map(|of| value(&text, of));
        assert_eq!(all, [1.0, 1.0, 1.0]);
        held.increment(0);
        assert_eq!(samples(&registry), [""; 0]);
        assert_eq!(samples(&registry), [""; 0]);
    }
}

#[test]
fn other_kinds_stay_when_they_are_idle() {
    let registry =
        Registry::builder().idle_timeout(&[Kind::Counter], Duration::ZERO).build().unwrap();
    registry.counter("hits", "", &[]).unwrap().increment(1);
    registry.gauge("level", "", &[]).unwrap().set(1.0);
    static COUNTER: thiscpu::Counter = thiscpu::Counter::new();
    registry.register("own_total", &COUNTER).unwrap();
    (0..3).for_each(|_| drop(registry.render()));
    assert_eq!(samples(&registry), ["level 1", "own_total 0"]);
}

/// Frees a name that a macro was rejected for, by removal and by idleness.
#[test]
fn macro_works_once_the_conflicting_metric_is_removed() {
    for timeout in [None, Some(Duration::ZERO)] {
        let builder = Registry::builder();
        let registry = match timeout {
            Some(timeout) => builder.idle_timeout(&[Kind::Gauge], timeout),
            None => builder,
        };
        let registry = registry.build().unwrap();
        registry.gauge("hits_total", "", &[]).unwrap().set(1.0);
        let hit = || with_local_recorder(&registry.recorder(), || counter!("hits").increment(1));
        hit();
        assert_eq!(registry.rejected().len(), 1);
        assert!(timeout.is_some() || registry.remove("hits_total", &[]));
        (0..2).for_each(|_| drop(registry.render()));
        hit();
        assert_eq!(value(&registry.render(), "hits_total"), 1.0);
    }
}

#[test]
fn macro_after_a_removal_begins_again_at_zero() {
    let registry = Registry::new();
    let hit = || {
        with_local_recorder(&registry.recorder(), || {
            counter!("hits").increment(1);
            gauge!("level").increment(1.0);
            histogram!("time").record(1.0);
        });
    };
    for _ in 0..3 {
        hit();
        let text = registry.render();
        let all = ["hits_total", "level", "time_count"].map(|series| value(&text, series));
        assert_eq!(all, [1.0, 1.0, 1.0]);
        assert_eq!(registry.remove_matching(&[]), 3);
    }
}

/// Lets a scrape visit the caches after a look-up, and then lets the series be idle.
#[test]
fn cached_handles_go_with_idle_series() {
    let registry = Registry::builder().idle_timeout(&ALL, Duration::ZERO).build().unwrap();
    // Hidden at the first scrape, and not freed.
    let _held = registry.counter("held", "", &[]).unwrap();
    let hit = || with_local_recorder(&registry.recorder(), || counter!("hits").increment(1));
    for hits in 1..=3 {
        hit();
        assert_eq!(samples(&registry), [format!("hits_total {hits}")]);
    }
    assert_eq!(samples(&registry), [""; 0]);
    hit();
    assert_eq!(samples(&registry), ["hits_total 1"]);
}
