//! The values of a scrape were true at one instant.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu_metrics::Registry;

use crate::threads::{during_steps, value};

fn acknowledged() -> Registry {
    let names = ["sent_total", "acknowledged_total"];
    Registry::builder().group("acknowledged", &names).build().unwrap()
}

/// Registers other counters between those of a group.
///
/// If the group's counters were not read together, they would be read long after each other.
fn register_others(registry: &Registry) {
    for i in 0..1_000 {
        registry.counter(&format!("other{i}"), "", &[]).unwrap();
    }
}

/// Increments two counters in turn, so that the first is ahead by 0 or 1.
#[test]
fn group_is_read_at_one_instant() {
    let registry = acknowledged();
    let sent = registry.counter("sent_total", "", &[("to", "x")]).unwrap();
    register_others(&registry);
    let counters = [sent, registry.counter("acknowledged_total", "", &[("to", "x")]).unwrap()];
    // Enough increments for per-CPU mode.
    counters.iter().for_each(|counter| (0..100).for_each(|_| counter.increment(1)));
    during_steps(
        |number| counters[number as usize % 2].increment(1),
        || {
            let text = registry.render();
            let [sent, acknowledged] = ["sent_total", "acknowledged_total"]
                .map(|name| value(&text, &format!("{name}{{to=\"x\"}}")));
            assert!(matches!(sent - acknowledged, 0.0 | 1.0), "{sent} {acknowledged}");
        },
    );
}

/// Uses handles of the facade.
#[test]
fn facade_group_is_read_at_one_instant() {
    let registry = acknowledged();
    let counters = metrics::with_local_recorder(&registry.recorder(), || {
        let sent = metrics::counter!("sent.total");
        register_others(&registry);
        [sent, metrics::counter!("acknowledged.total")]
    });
    during_steps(
        |number| counters[number as usize % 2].increment(1),
        || {
            let text = registry.render();
            let ahead = value(&text, "sent_total") - value(&text, "acknowledged_total");
            assert!(matches!(ahead, 0.0 | 1.0), "{ahead}");
        },
    );
}

#[test]
fn group_counters_are_separate_by_labels() {
    let registry = Registry::builder().group("g", &["a", "b", "c"]).build().unwrap();
    for (number, name) in (1..).zip(["b", "c", "a"]) {
        for (factor, label) in [(1, "x"), (10, "y")] {
            registry.counter(name, "", &[("of", label)]).unwrap().increment(number * factor);
        }
    }
    let text = registry.render();
    for (series, wanted) in
        [("b_total{of=\"x\"}", 1.0), ("a_total{of=\"y\"}", 30.0), ("c_total{of=\"y\"}", 20.0)]
    {
        assert_eq!(value(&text, series), wanted);
    }
}

/// Checks that the sum is never ahead of the count, and at most one observation behind.
#[test]
fn histogram_is_read_at_one_instant() {
    let registry = Registry::builder().default_buckets(&[0.5, 1.0]).build().unwrap();
    let histogram = registry.histogram("ones", "", &[]).unwrap();
    let scrape = || {
        let text = registry.render();
        let [count, sum, infinite] =
            ["ones_count", "ones_sum", "ones_bucket{le=\"+Inf\"}"].map(|line| value(&text, line));
        assert_eq!(count, infinite);
        assert!(matches!(count - sum, 0.0 | 1.0), "{count} {sum}");
    };
    // A scrape rarely comes between the two steps of a record, so this runs often.
    (0..20).for_each(|_| during_steps(|_| histogram.record(1.0), scrape));
    let text = registry.render();
    assert_eq!(value(&text, "ones_count"), value(&text, "ones_sum"));
}

/// Changes a gauge by integers, fractions and `set`, through a fixed sequence of values.
#[test]
fn gauge_shows_only_values_that_it_had() {
    let registry = Registry::new();
    let gauge = registry.gauge("level", "", &[]).unwrap();
    // Enough increments for per-CPU mode.
    (0..100).for_each(|_| gauge.increment(1.0));
    gauge.set(0.0);
    let step = |number: u64| match number % 6 {
        0 => gauge.increment(1.0),
        1 => gauge.increment(0.25),
        2 => gauge.increment(1.0),
        3 => gauge.set(10.0),
        4 => gauge.decrement(1.0),
        _ => gauge.set(0.0),
    };
    during_steps(step, || {
        let level = value(&registry.render(), "level");
        assert!([0.0, 1.0, 1.25, 2.25, 10.0, 9.0].contains(&level), "{level}");
    });
}

/// Adds a fraction and an integer in turn. Only fractions change the base.
///
/// A scrape must not show an integer without the fraction before it.
#[test]
fn gauge_shows_fraction_before_the_integer_that_follows() {
    let registry = Registry::new();
    // Its counter is then read long after the scrape began.
    register_others(&registry);
    let gauge = registry.gauge("level", "", &[]).unwrap();
    // Enough increments for per-CPU mode.
    (0..100).for_each(|_| gauge.increment(1.0));
    gauge.set(0.0);
    let step = |number: u64| gauge.increment(if number.is_multiple_of(2) { 0.25 } else { 1.0 });
    during_steps(step, || {
        let level = value(&registry.render(), "level");
        assert!([0.0, 0.25].contains(&(level % 1.25)), "{level}");
    });
}

#[test]
fn no_increment_is_lost_during_scrapes() {
    const EACH: u64 = 20_000;
    let registry = Registry::builder().group("g", &["member"]).build().unwrap();
    let counter = registry.counter("own", "", &[]).unwrap();
    let member = registry.counter("member", "", &[]).unwrap();
    let gauge = registry.gauge("gauge", "", &[]).unwrap();
    let histogram = registry.histogram("histogram", "", &[]).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let _ = registry.render();
            }
        });
        let adders: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        counter.increment(3);
                        member.increment(2);
                        gauge.increment(1.0);
                        gauge.decrement(0.5);
                        histogram.record(1.25);
                    }
                })
            })
            .collect();
        let joined: Vec<_> = adders.into_iter().map(|adder| adder.join()).collect();
        is_over.store(true, SeqCst);
        assert!(joined.iter().all(Result::is_ok));
    });
    let text = registry.render();
    let all = 3.0 * EACH as f64;
    for (series, each) in [
        ("own_total", 3.0),
        ("member_total", 2.0),
        ("gauge", 0.5),
        ("histogram_count", 1.0),
        ("histogram_sum", 1.25),
    ] {
        assert_eq!(value(&text, series), each * all, "{series}");
    }
}
