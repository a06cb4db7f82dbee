//! Families find, register and lose series, by labels of a type of the program.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use metrics::{counter, with_local_recorder};
use thiscpu_metrics::{Counter, Error, Gauge, Histogram, Kind, LabelSet, LabelValues, Registry};
use thiscpu_test_support::child;

use crate::threads::value;

struct Request<'a> {
    method: &'a str,
    status: u16,
}

impl LabelSet for Request<'_> {
    type Static = Request<'static>;
    const NAMES: &'static [&'static str] = &["method", "status"];

    fn push_values(&self, values: &mut impl LabelValues) {
        values.push(self.method);
        values.push_display(self.status);
    }
}

struct Path(usize);

impl LabelSet for Path {
    type Static = Path;
    const NAMES: &'static [&'static str] = &["path"];

    fn push_values(&self, values: &mut impl LabelValues) {
        values.push_display(self.0);
    }
}

const GET: Request<'static> = Request { method: "get", status: 200 };
const PUT: Request<'static> = Request { method: "put", status: 404 };

#[test]
fn family_writes_what_single_registrations_write() {
    let (one, other) = (Registry::new(), Registry::new());
    let (hits, level, time) = (
        one.family::<Request, Counter>("hits", "Hits.").unwrap(),
        one.family::<Request, Gauge>("level", "").unwrap(),
        one.family::<Request, Histogram>("time", "").unwrap(),
    );
    assert_eq!(one.render(), "");
    for (request, status) in [(GET, "200"), (PUT, "404")] {
        for _ in 0..2 {
            hits.get_or_create(&request).increment(2);
            level.clone().get_or_create(&request).increment(0.5);
            time.get_or_create(&request).record(1.5);
        }
        let labels = [("method", request.method), ("status", status)];
        other.counter("hits", "Hits.", &labels).unwrap().increment(4);
        other.gauge("level", "", &labels).unwrap().set(1.0);
        other.histogram("time", "", &labels).unwrap().record_many(1.5, 2);
    }
    assert_eq!(one.render(), other.render());
    assert!(one.render().contains("hits_total{method=\"put\",status=\"404\"} 4\n"));
}

#[test]
fn family_shares_series_with_others() {
    let registry = Registry::new();
    let hits = registry.family::<Request, Counter>("hits", "Hits.").unwrap();
    let again = registry.family::<Request, Counter>("hits", "").unwrap();
    let labels = [("status", "200"), ("method", "get")];
    let own = registry.counter("hits", "", &labels).unwrap();
    own.increment(1);
    hits.get_or_create(&GET).increment(10);
    again.get_or_create(&GET).increment(100);
    with_local_recorder(&registry.recorder(), || {
        counter!("hits", "method" => "get", "status" => "200").increment(1_000);
    });
    let text = registry.render();
    assert_eq!(value(&text, "hits_total{method=\"get\",status=\"200\"}"), 1_111.0, "{text}");
    assert_eq!(registry.rejected(), []);
}

#[test]
fn family_requires_valid_names() {
    struct Reserved;

    impl LabelSet for Reserved {
        type Static = Reserved;
        const NAMES: &'static [&'static str] = &["le"];

        fn push_values(&self, values: &mut impl LabelValues) {
            values.push("1");
        }
    }

    let registry = Registry::builder().group("g", &["member"]).build().unwrap();
    let error = registry.family::<Reserved, Counter>("hits", "").unwrap_err();
    assert!(matches!(error, Error::ReservedLabel { .. }), "{error}");
    let error = registry.family::<Path, Counter>("a.b", "").unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    let error = registry.family::<Path, Gauge>("member", "").unwrap_err();
    assert!(matches!(error, Error::InvalidGroup { .. }), "{error}");
    registry.gauge("level", "Level.", &[]).unwrap();
    let error = registry.family::<Path, Histogram>("level", "").unwrap_err();
    assert!(matches!(error, Error::KindMismatch { .. }), "{error}");
    let error = registry.family::<Path, Gauge>("level", "Other.").unwrap_err();
    assert!(matches!(error, Error::HelpMismatch { .. }), "{error}");
}

#[test]
fn rejected_series_counts_unseen_until_its_name_is_free() {
    static SHOWN: thiscpu::Counter = thiscpu::Counter::new();
    let registry = Registry::new();
    let hits = registry.family::<Path, Counter>("hits_total", "").unwrap();
    registry.register_with("hits_total", "", &[("path", "1")], &SHOWN).unwrap();
    for _ in 0..2 {
        hits.get_or_create(&Path(1)).increment(5);
    }
    assert!(matches!(&registry.rejected()[..], [Error::DuplicateSeries { .. }]));
    assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 0.0);
    assert!(registry.remove("hits_total", &[("path", "1")]));
    hits.get_or_create(&Path(1)).increment(7);
    assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 7.0);
}

#[test]
fn known_series_of_a_family_are_found_during_a_scrape() {
    let registry = Registry::new();
    let hits = registry.family::<Path, Counter>("hits", "").unwrap();
    hits.get_or_create(&Path(1)).increment(1);
    let (begun, found) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let both = (Arc::clone(&begun), Arc::clone(&found));
    let wait = move || {
        both.0.wait();
        both.1.wait();
        1.0
    };
    registry.register_gauge("waits", "", &[], wait).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            // A look-up that needs the registry's lock would never return.
            hits.get_or_create(&Path(1)).increment(1);
            found.wait();
        });
        assert_eq!(value(&registry.render(), "waits"), 1.0);
    });
    assert!(registry.remove("waits", &[]));
    assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 2.0);
}

#[test]
fn removed_series_of_a_family_begins_again_at_zero() {
    let registry = Registry::new();
    let hits = registry.family::<Path, Counter>("hits", "").unwrap();
    for _ in 0..3 {
        hits.get_or_create(&Path(1)).increment(4);
        hits.get_or_create(&Path(2)).increment(5);
        let own = hits.get_or_create(&Path(3)).clone();
        own.increment(6);
        assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 4.0);
        assert!(hits.remove(&Path(1)) && !hits.remove(&Path(1)));
        assert_eq!(registry.remove_matching(&[("path", "2")]), 1);
        assert!(registry.remove_handle(own));
        assert_eq!(registry.render(), "");
    }
}

#[test]
fn removed_series_of_a_family_is_shown_again_if_it_is_used() {
    let registry = Registry::new();
    let hits = registry.family::<Path, Counter>("hits", "").unwrap();
    hits.get_or_create(&Path(1)).increment(1);
    // Borrowed and owned handles.
    for round in 0..2 {
        let held = hits.get_or_create(&Path(1));
        let owned = hits.get_or_create(&Path(1)).clone();
        assert!(hits.remove(&Path(1)));
        assert_eq!(registry.render(), "");
        if round == 0 {
            held.increment(10)
        } else {
            owned.increment(100)
        }
        let all = [11.0, 111.0][round];
        assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), all);
    }
    // Once no handle is left, it begins again.
    assert!(hits.remove(&Path(1)));
    hits.get_or_create(&Path(1)).increment(1);
    assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 1.0);
}

#[test]
fn idle_series_of_a_family_go_away_until_they_are_used() {
    let registry =
        Registry::builder().idle_timeout(&[Kind::Counter], Duration::ZERO).build().unwrap();
    let hits = registry.family::<Path, Counter>("hits", "").unwrap();
    for _ in 0..3 {
        hits.get_or_create(&Path(1)).increment(1);
        assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 1.0);
        assert_eq!(registry.render(), "");
    }
}

#[test]
fn dropped_family_leaves_its_series() {
    let registry = Registry::new();
    let hits = registry.family::<Path, Counter>("hits", "").unwrap();
    hits.get_or_create(&Path(1)).increment(1);
    drop(hits);
    assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 1.0);
    // It has no handle any more, so it is freed at once.
    assert!(registry.remove("hits", &[("path", "1")]));
    let again = registry.counter("hits", "", &[("path", "1")]).unwrap();
    again.increment(2);
    assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 2.0);
}

#[test]
fn child_looks_up_and_removes_while_its_parent_held_a_handle() {
    let registry = Registry::new();
    let hits = registry.family::<Path, Counter>("hits", "").unwrap();
    let held = hits.get_or_create(&Path(1));
    child::assert_holds(|| {
        hits.get_or_create(&Path(1)).increment(3);
        hits.get_or_create(&Path(2)).increment(4);
        let shown = registry.render();
        hits.remove(&Path(1))
            && hits.remove(&Path(2))
            && registry.render().is_empty()
            && value(&shown, "hits_total{path=\"2\"}") == 4.0
    });
    held.increment(1);
    assert_eq!(value(&registry.render(), "hits_total{path=\"1\"}"), 1.0);
}
