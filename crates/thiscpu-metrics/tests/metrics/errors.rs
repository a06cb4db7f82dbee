//! What cannot be is refused with words, and changes nothing.

use thiscpu_metrics::{Error, Kind, Registry};

/// The message has all of these in it.
#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

#[test]
fn bad_names() {
    let registry = Registry::new();
    let error = registry.counter("http.requests", "", &[]).unwrap_err();
    let name = "http.requests".to_owned();
    assert_eq!(error, Error::InvalidName { name, character: '.', position: 4 });
    says(&error, &["http.requests", "'.' at position 4", "letters of ASCII"]);
    let error = registry.gauge("ok", "", &[("9th", "")]).unwrap_err();
    says(&error, &["label \"9th\" of ok", "'9' at position 0"]);
    says(&registry.gauge("ok", "", &[("", "x")]).unwrap_err(), &["label of ok", "empty"]);
    says(&registry.histogram("", "", &[]).unwrap_err(), &["metric", "empty"]);
    says(&registry.counter("ok", "", &[("le", "1")]).unwrap_err(), &["\"le\"", "ok", "buckets"]);
    says(&registry.counter("ok", "", &[("__x", "1")]).unwrap_err(), &["\"__x\"", "Prometheus"]);
    says(&registry.counter("ok", "", &[("x", "1"), ("x", "2")]).unwrap_err(), &["\"x\" twice"]);
    assert_eq!(registry.render(), "");
}

#[test]
fn what_is_there_already() {
    let registry = Registry::new();
    let counter = registry.counter("hits", "Hits.", &[("a", "1"), ("b", "2")]).unwrap();
    let error = registry.counter("hits", "Hits.", &[("b", "2"), ("a", "1")]).unwrap_err();
    assert_eq!(error, Error::DuplicateSeries { series: r#"hits{a="1",b="2"}"#.to_owned() });
    says(&error, &["registered already", "handle"]);
    let error = registry.gauge("hits", "Hits.", &[("a", "1"), ("b", "2")]).unwrap_err();
    let (existing, requested) = (Kind::Counter, Kind::Gauge);
    assert_eq!(error, Error::KindMismatch { name: "hits".to_owned(), existing, requested });
    let error = registry.counter("hits", "Misses.", &[]).unwrap_err();
    says(&error, &["\"Hits.\"", "\"Misses.\""]);
    registry.counter("hits", "", &[]).unwrap().increment(1);
    counter.increment(2);
    let text = "# HELP hits Hits.\n# TYPE hits counter\nhits{a=\"1\",b=\"2\"} 2\nhits 1\n";
    assert_eq!(registry.render(), text);
}

/// Which registration has the text makes no difference; one that is refused says nothing.
#[test]
fn help_may_come_later() {
    let registry = Registry::new();
    registry.counter("hits", "", &[]).unwrap();
    registry.counter("hits", "Refused.", &[]).unwrap_err();
    registry.counter("hits", "Hits.", &[("a", "1")]).unwrap();
    says(&registry.counter("hits", "Misses.", &[("a", "2")]).unwrap_err(), &["\"Hits.\""]);
    assert_eq!(
        registry.render(),
        "# HELP hits Hits.\n# TYPE hits counter\nhits 0\nhits{a=\"1\"} 0\n"
    );
}

/// For Prometheus a label without a value is one that is not there.
#[test]
fn empty_labels_make_no_series() {
    let registry = Registry::new();
    registry.counter("hits", "", &[]).unwrap().increment(1);
    let error = registry.counter("hits", "", &[("x", "")]).unwrap_err();
    assert_eq!(error, Error::DuplicateSeries { series: "hits".to_owned() });
    registry.counter("hits", "", &[("a", ""), ("b", "1"), ("c", "")]).unwrap();
    metrics::with_local_recorder(&registry.recorder(), || {
        metrics::counter!("hits", "x" => "").increment(1);
    });
    assert_eq!(registry.rejected(), []);
    assert_eq!(registry.render(), "# TYPE hits counter\nhits 2\nhits{b=\"1\"} 0\n");
}

#[test]
fn lines_of_histograms_are_taken() {
    let registry = Registry::new();
    registry.histogram("time", "", &[]).unwrap();
    let before = registry.render();
    for line in ["time_bucket", "time_sum", "time_count"] {
        let error = registry.counter(line, "", &[]).unwrap_err();
        let (name, histogram) = (line.to_owned(), "time".to_owned());
        assert_eq!(error, Error::HistogramNameConflict { name, histogram });
    }
    assert_eq!(registry.render(), before);
    registry.gauge("size_sum", "", &[]).unwrap();
    says(&registry.histogram("size", "", &[]).unwrap_err(), &["size_sum", "histogram size"]);
    // Nothing of it is left behind.
    registry.counter("size_bucket", "", &[]).unwrap();
}

#[test]
fn groups_have_counters() {
    let registry = Registry::builder().group("traffic", &["in", "out"]).build().unwrap();
    let error = registry.gauge("in", "", &[]).unwrap_err();
    says(&error, &["\"traffic\"", "in is a gauge"]);
    registry.counter("in", "", &[]).unwrap();
    let error = Registry::builder().buckets_for("x", &[2.0, 1.0]).build().unwrap_err();
    says(&error, &["buckets of x", "larger than the one before"]);
}
