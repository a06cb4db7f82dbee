//! Structures of the program, which the registry shows.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use thiscpu::{Budget, Cache, ConstructedCache, Counter, Counters, Ledger};
use thiscpu_metrics::{AccountCounter, Error, Format, Kind, Labeled, Registry, TopAccounts};

use crate::threads::{during_steps, value};

static REQUESTS: Counter = Counter::new();
static BY_METHOD: Counters<2> = Counters::new();
static MEMORY: Budget = Budget::new(100);
static OBJECTS: Cache<[u64; 4]> = Cache::new();
static CONSTRUCTED: ConstructedCache<u64> = ConstructedCache::new(|| 7);

#[test]
fn structures_in_statics_are_shown() {
    let registry = Registry::new();
    let own = registry.counter("own", "", &[]).unwrap();
    registry.register("requests_total", &REQUESTS).unwrap();
    registry.register("by_method", &BY_METHOD).unwrap();
    registry.register("named_total", Labeled::new(&BY_METHOD, "method", ["get", "put"])).unwrap();
    registry.register("memory", &MEMORY).unwrap();
    registry.register("objects", &OBJECTS).unwrap();
    registry.register("constructed", &CONSTRUCTED).unwrap();
    own.increment(1);
    REQUESTS.add(3);
    BY_METHOD.add(1, -4);
    BY_METHOD.add(0, 2);
    let lease = MEMORY.lease(30).unwrap();
    let object = OBJECTS.alloc([0; 4]);
    let text = registry.render();
    for (series, wanted) in [
        ("own_total", 1.0),
        ("requests_total", 3.0),
        ("by_method{index=\"0\"}", 2.0),
        ("by_method{index=\"1\"}", -4.0),
        ("named_total{method=\"get\"}", 2.0),
        ("memory_limit", 100.0),
        ("memory_held", 30.0),
        ("objects_object_bytes", 32.0),
        ("constructed_trades_total", 0.0),
    ] {
        assert_eq!(value(&text, series), wanted, "{series}");
    }
    assert!(value(&text, "objects_objects_outside_slabs") >= 1.0, "{text}");
    assert!(text.contains("# TYPE requests_total counter\n"), "{text}");
    assert!(text.contains("# TYPE by_method gauge\n"), "{text}");
    drop((lease, object));
    assert_eq!(value(&registry.render(), "memory_held"), 0.0);
}

#[test]
fn structures_in_arcs_live_as_long_as_the_registry() {
    let registry = Registry::new();
    let counter = Arc::new(Counter::new());
    let labels = [("kind", "tcp")];
    registry.register_with("sockets", "Open ones.", &labels, Arc::clone(&counter)).unwrap();
    registry.register_with("sockets", "", &[("kind", "udp")], Arc::new(Counter::new())).unwrap();
    counter.add(5);
    let weak = Arc::downgrade(&counter);
    drop(counter);
    let wanted = "# HELP sockets Open ones.\n# TYPE sockets gauge\n\
                  sockets{kind=\"tcp\"} 5\nsockets{kind=\"udp\"} 0\n";
    assert_eq!(registry.render(), wanted);
    drop(registry);
    assert_eq!(weak.strong_count(), 0);
}

#[test]
fn accounts_are_shown_by_value_and_by_label() {
    let registry = Registry::new();
    let ledger = Ledger::<2>::new();
    let accounts: Vec<_> = (0..100).map(|_| ledger.open()).collect();
    accounts.iter().zip(1..).for_each(|(account, bytes)| account.charge(1, bytes));
    let top = TopAccounts::new(&ledger, 1, 3, "account", |id| format!("\"{id}\""));
    registry.register("top_bytes", top).unwrap();
    let one = AccountCounter::new(&accounts[4], 1);
    registry.register_with("tenant_bytes", "", &[("tenant", "acme")], one).unwrap();
    let lines = || -> Vec<String> {
        let text = registry.render_as(Format::OpenMetrics);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    let line = |at: usize, bytes: usize| {
        format!("top_bytes{{account=\"\\\"{}\\\"\"}} {bytes}", accounts[at].id())
    };
    let tenant = |bytes: u32| format!("tenant_bytes{{tenant=\"acme\"}} {bytes}");
    assert_eq!(lines(), [line(99, 100), line(98, 99), line(97, 98), tenant(5)]);
    accounts[4].charge(1, 1_000);
    assert_eq!(lines(), [line(4, 1_005), line(99, 100), line(98, 99), tenant(1_005)]);
    // The metric has no other series.
    let again = registry.register("top_bytes", Arc::new(Counter::new()));
    assert!(matches!(again, Err(Error::DuplicateSeries { .. })), "{again:?}");
}

#[test]
fn closures_are_called_at_each_scrape() {
    let registry = Registry::new();
    let fails = Arc::new(AtomicBool::new(false));
    let value = {
        let fails = Arc::clone(&fails);
        move || {
            assert!(!fails.load(SeqCst), "deliberate");
            0.5
        }
    };
    registry.register_gauge("load", "Load.", &[("of", "x")], value).unwrap();
    registry.register_gauge("other", "", &[], || 7.0).unwrap();
    let heading = "# HELP load Load.\n# TYPE load gauge\n";
    let other = "# TYPE other gauge\nother 7\n";
    assert_eq!(registry.render(), format!("{heading}load{{of=\"x\"}} 0.5\n{other}"));
    fails.store(true, SeqCst);
    assert_eq!(registry.render(), format!("{heading}{other}"));
    fails.store(false, SeqCst);
    assert_eq!(registry.render(), format!("{heading}load{{of=\"x\"}} 0.5\n{other}"));
}

#[test]
fn structures_that_cannot_be_registered_change_nothing() {
    let registry = Registry::new();
    registry.counter("x_held", "", &[]).unwrap();
    registry.gauge("b_held", "", &[]).unwrap();
    let before = registry.render();
    let error = registry.register("b", &MEMORY).unwrap_err();
    assert_eq!(error, Error::DuplicateSeries { series: "b_held".to_owned() });
    let error = registry.register("x_held_total", &MEMORY).map(drop);
    error.unwrap();
    let error = registry.register("x_held", &REQUESTS).unwrap_err();
    let (existing, requested) = (Kind::Counter, Kind::Gauge);
    assert_eq!(error, Error::KindMismatch { name: "x_held".to_owned(), existing, requested });
    assert!(matches!(registry.register("a.b", &REQUESTS), Err(Error::InvalidName { .. })));
    let text = registry.render();
    assert!(text.starts_with(&before) && !text.contains("b_limit"), "{text}");
}

/// Increments the two counters of a row in turn.
#[test]
fn registered_row_is_read_at_one_instant() {
    static PAIR: Counters<2> = Counters::new();
    let registry = Registry::new();
    registry.register("pair", &PAIR).unwrap();
    (0..100).for_each(|i| PAIR.add(i % 2, 1));
    during_steps(
        |number| PAIR.add(number as usize % 2, 1),
        || {
            let text = registry.render();
            let [first, second] =
                [0, 1].map(|index| value(&text, &format!("pair{{index=\"{index}\"}}")));
            assert!(matches!(first - second, 0.0 | 1.0), "{first} {second}");
        },
    );
}

/// Checks text and labels of series that differ from scrape to scrape.
#[test]
fn largest_accounts_have_the_labels_of_their_registration() {
    let registry = Registry::new();
    let ledger = Ledger::<1>::new();
    let account = ledger.open();
    account.charge(0, 7);
    let top = |label| TopAccounts::new(&ledger, 0, 1, label, |_| "acme".to_owned());
    let duplicate = registry.register_with("x", "", &[("kind", "tcp")], top("kind"));
    assert!(matches!(duplicate, Err(Error::DuplicateLabel { .. })), "{duplicate:?}");
    let labels = [("proto", "\"tcp\""), ("empty", ""), ("az", "1")];
    registry.register_with("x", "", &labels, top("kind")).unwrap();
    let nameless = TopAccounts::new(&ledger, 0, 1, "kind", |_| String::new());
    registry.register("y", nameless).unwrap();
    let wanted = "# TYPE x gauge\nx{az=\"1\",proto=\"\\\"tcp\\\"\",kind=\"acme\"} 7\n\
                  # TYPE y gauge\ny 7\n";
    assert_eq!(registry.render(), wanted);
    // They cannot be removed.
    assert_eq!(registry.remove_matching(&[]), 0);
    assert_eq!(registry.render(), wanted);
}

#[test]
fn structures_with_equal_series_are_rejected() {
    let registry = Registry::new();
    for values in [["get", "get"], ["", ""]] {
        let outcome = registry.register("x", Labeled::new(&BY_METHOD, "method", values));
        assert!(matches!(outcome, Err(Error::DuplicateSeries { .. })), "{outcome:?}");
        assert_eq!(registry.render(), "");
    }
}

#[test]
fn every_counter_has_a_name_before_its_suffix() {
    let registry = Registry::new();
    static COUNTER: Counter = Counter::new();
    registry.register("_total", &COUNTER).unwrap();
    let wanted = "# TYPE _total counter\n_total_total 0\n# EOF\n";
    assert_eq!(registry.render_as(Format::OpenMetrics), wanted);
    assert!(registry.remove("_total", &[]));
}

#[test]
fn facade_does_not_get_series_of_structures() {
    let registry = Registry::new();
    static COUNTER: Counter = Counter::new();
    registry.register("requests_total", &COUNTER).unwrap();
    registry.register("level", &COUNTER).unwrap();
    let use_facade = || {
        metrics::with_local_recorder(&registry.recorder(), || {
            metrics::counter!("requests_total").increment(1);
            metrics::gauge!("level").increment(2.0);
        });
    };
    use_facade();
    let series = |series: &str| Error::DuplicateSeries { series: series.to_owned() };
    assert_eq!(registry.rejected(), [series("requests_total"), series("level")]);
    // Once the names are free, the facade gets them.
    assert_eq!(registry.remove_matching(&[]), 2);
    use_facade();
    let text = registry.render();
    assert_eq!([value(&text, "requests_total"), value(&text, "level")], [1.0, 2.0]);
}

#[test]
fn budget_has_waiters_and_excess() {
    static UNITS: Budget = Budget::new(1);
    let registry = Registry::new();
    registry.register("units", &UNITS).unwrap();
    let all = || {
        let text = registry.render();
        ["units_held", "units_waiters", "units_over_released_total"].map(|of| value(&text, of))
    };
    UNITS.try_acquire(1).unwrap();
    assert_eq!(all(), [1.0, 0.0, 0.0]);
    std::thread::scope(|scope| {
        scope.spawn(|| UNITS.acquire(1).unwrap());
        while UNITS.waiters() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(all(), [1.0, 1.0, 0.0]);
        UNITS.release(1);
    });
    UNITS.release(1);
    UNITS.release(1);
    assert_eq!(all(), [0.0, 0.0, 1.0]);
}
