//! What a scrape shows was true at one instant.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu_metrics::Registry;

use crate::threads::{alternate, value};

/// Turns of two threads add to one counter, then to the other: the first is ahead by 0 or 1.
fn ahead_by_one(registry: &Registry) {
    let counters = ["sent_total", "acknowledged_total"]
        .map(|name| registry.counter(name, "", &[("to", "x")]).unwrap());
    // So that both are in lanes.
    counters.iter().for_each(|counter| (0..100).for_each(|_| counter.increment(1)));
    alternate(
        |turn| counters[turn as usize % 2].increment(1),
        || {
            let text = registry.render();
            let [sent, acknowledged] = ["sent_total", "acknowledged_total"]
                .map(|name| value(&text, &format!("{name}{{to=\"x\"}}")));
            assert!(matches!(sent - acknowledged, 0.0 | 1.0), "{sent} {acknowledged}");
        },
    );
}

#[test]
fn a_group_is_read_at_one_instant() {
    let names = ["sent_total", "acknowledged_total"];
    ahead_by_one(&Registry::builder().group("acknowledged", &names).build().unwrap());
}

/// The same by handles that the facade gave.
#[test]
fn a_group_of_the_facade_is_read_at_one_instant() {
    let names = ["sent_total", "acknowledged_total"];
    let registry = Registry::builder().group("acknowledged", &names).build().unwrap();
    let counters = metrics::with_local_recorder(&registry.recorder(), || {
        [metrics::counter!("sent.total"), metrics::counter!("acknowledged.total")]
    });
    alternate(
        |turn| counters[turn as usize % 2].increment(1),
        || {
            let text = registry.render();
            let ahead = value(&text, names[0]) - value(&text, names[1]);
            assert!(matches!(ahead, 0.0 | 1.0), "{ahead}");
        },
    );
}

#[test]
fn members_of_a_group_are_apart_by_labels() {
    let registry = Registry::builder().group("g", &["a", "b", "c"]).build().unwrap();
    for (number, name) in (1..).zip(["b", "c", "a"]) {
        for (factor, label) in [(1, "x"), (10, "y")] {
            registry.counter(name, "", &[("of", label)]).unwrap().increment(number * factor);
        }
    }
    let text = registry.render();
    for (series, wanted) in [("b{of=\"x\"}", 1.0), ("a{of=\"y\"}", 30.0), ("c{of=\"y\"}", 20.0)] {
        assert_eq!(value(&text, series), wanted);
    }
}

/// The sum is never ahead of the count, nor behind by more than what is under way: one observation.
#[test]
fn a_histogram_is_read_at_one_instant() {
    let registry = Registry::builder().default_buckets(&[0.5, 1.0]).build().unwrap();
    let histogram = registry.histogram("ones", "", &[]).unwrap();
    alternate(
        |_| histogram.record(1.0),
        || {
            let text = registry.render();
            let [count, sum, infinite] = ["ones_count", "ones_sum", "ones_bucket{le=\"+Inf\"}"]
                .map(|line| value(&text, line));
            assert_eq!(count, infinite);
            assert!(matches!(count - sum, 0.0 | 1.0), "{count} {sum}");
        },
    );
    let text = registry.render();
    assert_eq!(value(&text, "ones_count"), value(&text, "ones_sum"));
}

/// Whole amounts, fractions and `set` in turn, by two threads: no other value than these ever was.
#[test]
fn a_gauge_shows_no_value_that_never_was() {
    let registry = Registry::new();
    let gauge = registry.gauge("level", "", &[]).unwrap();
    // So that the counter in it is in lanes.
    (0..100).for_each(|_| gauge.increment(1.0));
    gauge.set(0.0);
    let step = |turn: u64| match turn % 6 {
        0 => gauge.increment(1.0),
        1 => gauge.increment(0.25),
        2 => gauge.increment(1.0),
        3 => gauge.set(10.0),
        4 => gauge.decrement(1.0),
        _ => gauge.set(0.0),
    };
    alternate(step, || {
        let level = value(&registry.render(), "level");
        assert!([0.0, 1.0, 1.25, 2.25, 10.0, 9.0].contains(&level), "{level}");
    });
}

/// The same while fractions alone change the base, which a scrape has to see too.
#[test]
fn fractions_of_a_gauge_are_of_the_scrape_or_after_it() {
    let registry = Registry::new();
    let gauge = registry.gauge("level", "", &[]).unwrap();
    (0..100).for_each(|_| gauge.increment(1.0));
    gauge.set(0.0);
    let step = |turn: u64| match turn % 4 {
        0 => gauge.increment(0.25),
        1 => gauge.increment(1.0),
        2 => gauge.decrement(0.25),
        _ => gauge.decrement(1.0),
    };
    alternate(step, || {
        let level = value(&registry.render(), "level");
        assert!([0.0, 0.25, 1.25, 1.0].contains(&level), "{level}");
    });
}

#[test]
fn nothing_is_lost_amid_scrapes() {
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
        ("own", 3.0),
        ("member", 2.0),
        ("gauge", 0.5),
        ("histogram_count", 1.0),
        ("histogram_sum", 1.25),
    ] {
        assert_eq!(value(&text, series), each * all, "{series}");
    }
}
