//! The recorder, used through the facade.

use metrics::{counter, describe_counter, describe_gauge, gauge, histogram, with_local_recorder};
use thiscpu_metrics::{Error, Registry};

use crate::threads::value;

#[test]
fn names_become_prometheus_names() {
    let registry = Registry::new();
    with_local_recorder(&registry.recorder(), || {
        describe_counter!("http.requests", "Requests.");
        counter!("http.requests", "http.method" => "get").increment(2);
        counter!("http.requests", "http.method" => "get").increment(3);
        counter!("http.requests", "http.method" => "put").absolute(4);
        gauge!("queue-length").set(7.5);
        describe_gauge!("queue-length", "Described later.");
        describe_gauge!("queue-length", "Described again.");
        histogram!("time").record(0.5);
    });
    let text = registry.render();
    let wanted = "# HELP http_requests_total Requests.\n\
                  # TYPE http_requests_total counter\n\
                  http_requests_total{http_method=\"get\"} 5\n\
                  http_requests_total{http_method=\"put\"} 4\n\
                  # HELP queue_length Described later.\n\
                  # TYPE queue_length gauge\n\
                  queue_length 7.5\n";
    assert!(text.starts_with(wanted), "{text}");
    assert_eq!(value(&text, "time_sum"), 0.5);
    assert_eq!(registry.rejected(), []);
}

#[test]
fn recorders_of_a_registry_share_its_series() {
    let registry = Registry::new();
    for _ in 0..2 {
        with_local_recorder(&registry.recorder(), || counter!("hits").increment(1));
    }
    registry.counter("hits", "", &[]).unwrap_err();
    assert_eq!(value(&registry.render(), "hits_total"), 2.0);
}

/// Uses more counters than share a row.
#[test]
fn counters_are_independent_across_rows() {
    let registry = Registry::new();
    let own: Vec<_> =
        (0..40).map(|i| registry.counter(&format!("own{i}"), "", &[]).unwrap()).collect();
    with_local_recorder(&registry.recorder(), || {
        for (i, own) in (0..40).zip(own) {
            own.increment(i);
            counter!(format!("own{i}")).increment(1000);
            counter!(format!("new{i}")).absolute(100 + i);
        }
    });
    let text = registry.render();
    for i in 0..40 {
        assert_eq!(value(&text, &format!("own{i}_total")), f64::from(1000 + i));
        assert_eq!(value(&text, &format!("new{i}_total")), f64::from(100 + i));
    }
}

#[test]
fn rejected_registrations_are_listed() {
    let registry = Registry::new();
    with_local_recorder(&registry.recorder(), || {
        counter!("a.b").increment(1);
        for _ in 0..2 {
            counter!("a_b").increment(10);
            gauge!("a.b").set(10.0);
            counter!("c", "le" => "1").increment(10);
        }
    });
    let rejected = registry.rejected();
    let [same, kind, label] = &rejected[..] else { panic!("{rejected:?}") };
    let (name, first, second) = ("a_b_total".to_owned(), "a.b".to_owned(), "a_b".to_owned());
    assert_eq!(*same, Error::NameCollision { name, first, second });
    assert!(matches!(kind, Error::KindMismatch { .. }), "{kind}");
    assert!(matches!(label, Error::ReservedLabel { .. }), "{label}");
    let text = registry.render();
    assert_eq!(value(&text, "a_b_total"), 1.0);
    let comment = text.lines().last().unwrap();
    assert!(
        comment.starts_with(
            "# Rejected registrations: 3; the first: name collision: \"a_b\" becomes a_b_total"
        ),
        "{comment}"
    );
}

#[test]
fn second_recorder_is_rejected() {
    let registry = Registry::new();
    registry.install_recorder().unwrap();
    let error = Registry::new().install_recorder().unwrap_err();
    assert_eq!(error, Error::RecorderInstalled);
    counter!("installed").increment(1);
    assert_eq!(value(&registry.render(), "installed_total"), 1.0);
}
