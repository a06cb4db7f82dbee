//! Invalid registrations return errors, and change nothing.

use thiscpu_metrics::{Error, Kind, Registry};

/// Checks that a message contains all of these words.
#[track_caller]
fn assert_says(error: &Error, words: &[&str]) {
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

#[test]
fn invalid_names_and_labels_are_rejected() {
    let registry = Registry::new();
    let error = registry.counter("http.requests", "", &[]).unwrap_err();
    let name = "http.requests".to_owned();
    assert_eq!(error, Error::InvalidName { name, character: '.', position: 4 });
    assert_says(&error, &["http.requests", "'.' at position 4", "ASCII letters"]);
    let error = registry.gauge("ok", "", &[("9th", "")]).unwrap_err();
    assert_says(&error, &["label \"9th\" of ok", "'9' at position 0"]);
    assert_says(&registry.gauge("ok", "", &[("", "x")]).unwrap_err(), &["label of ok", "empty"]);
    assert_says(&registry.histogram("", "", &[]).unwrap_err(), &["name", "empty"]);
    assert_says(
        &registry.counter("ok", "", &[("le", "1")]).unwrap_err(),
        &["\"le\"", "ok", "buckets"],
    );
    assert_says(
        &registry.counter("ok", "", &[("__x", "1")]).unwrap_err(),
        &["\"__x\"", "Prometheus"],
    );
    assert_says(
        &registry.counter("ok", "", &[("x", "1"), ("x", "2")]).unwrap_err(),
        &["duplicate", "\"x\""],
    );
    assert_eq!(registry.render(), "");
}

#[test]
fn registration_conflicts_are_rejected() {
    let registry = Registry::new();
    let counter = registry.counter("hits", "Hits.", &[("a", "1"), ("b", "2")]).unwrap();
    let error = registry.counter("hits", "Hits.", &[("b", "2"), ("a", "1")]).unwrap_err();
    assert_eq!(error, Error::DuplicateSeries { series: r#"hits_total{a="1",b="2"}"#.to_owned() });
    assert_says(&error, &["already registered", "handle"]);
    let error = registry.gauge("hits", "Hits.", &[("a", "1"), ("b", "2")]).unwrap_err();
    let (existing, requested) = (Kind::Counter, Kind::Gauge);
    assert_eq!(error, Error::KindMismatch { name: "hits".to_owned(), existing, requested });
    let error = registry.counter("hits", "Misses.", &[]).unwrap_err();
    assert_says(&error, &["\"Hits.\"", "\"Misses.\""]);
    registry.counter("hits", "", &[]).unwrap().increment(1);
    counter.increment(2);
    let text = "# HELP hits_total Hits.\n# TYPE hits_total counter\n\
                hits_total{a=\"1\",b=\"2\"} 2\nhits_total 1\n";
    assert_eq!(registry.render(), text);
}

/// Checks also that a rejected registration sets no help text.
#[test]
fn help_text_may_come_with_any_series() {
    let registry = Registry::new();
    registry.counter("hits", "", &[]).unwrap();
    registry.counter("hits", "Rejected.", &[]).unwrap_err();
    registry.counter("hits", "Hits.", &[("a", "1")]).unwrap();
    assert_says(&registry.counter("hits", "Misses.", &[("a", "2")]).unwrap_err(), &["\"Hits.\""]);
    assert_eq!(
        registry.render(),
        "# HELP hits_total Hits.\n# TYPE hits_total counter\nhits_total 0\nhits_total{a=\"1\"} 0\n"
    );
}

/// Treats a label with an empty value as missing, as Prometheus does.
#[test]
fn empty_labels_make_no_new_series() {
    let registry = Registry::new();
    registry.counter("hits", "", &[]).unwrap().increment(1);
    let error = registry.counter("hits", "", &[("x", "")]).unwrap_err();
    assert_eq!(error, Error::DuplicateSeries { series: "hits_total".to_owned() });
    registry.counter("hits", "", &[("a", ""), ("b", "1"), ("c", "")]).unwrap();
    metrics::with_local_recorder(&registry.recorder(), || {
        metrics::counter!("hits", "x" => "").increment(1);
    });
    assert_eq!(registry.rejected(), []);
    assert_eq!(
        registry.render(),
        "# TYPE hits_total counter\nhits_total 2\nhits_total{b=\"1\"} 0\n"
    );
}

#[test]
fn names_of_histogram_lines_are_rejected() {
    let registry = Registry::new();
    registry.histogram("time", "", &[]).unwrap();
    let before = registry.render();
    for line in ["time_bucket", "time_sum", "time_count", "time_created"] {
        let error = registry.gauge(line, "", &[]).unwrap_err();
        let (name, metric) = (line.to_owned(), "time".to_owned());
        assert_eq!(error, Error::NameConflict { name, metric });
    }
    assert_eq!(registry.render(), before);
    registry.gauge("size_sum", "", &[]).unwrap();
    assert_says(&registry.histogram("size", "", &[]).unwrap_err(), &["size_sum", " and size "]);
    // The rejected histogram has reserved no name.
    registry.gauge("size_bucket", "", &[]).unwrap();
}

#[test]
fn groups_contain_only_counters() {
    let registry = Registry::builder().group("traffic", &["in", "out"]).build().unwrap();
    let error = registry.gauge("in", "", &[]).unwrap_err();
    assert_says(&error, &["\"traffic\"", "in is a gauge"]);
    registry.counter("in", "", &[]).unwrap();
    let error = Registry::builder().buckets_for("x", &[2.0, 1.0]).build().unwrap_err();
    assert_says(&error, &["buckets of x", "not larger than the one before"]);
}
