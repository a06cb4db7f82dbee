//! The text format, as text and as another parser reads it.

use prometheus_parse::{Scrape, Value};
use thiscpu_metrics::Registry;

#[test]
fn every_kind_is_written_in_the_text_format() {
    let registry = Registry::builder().buckets_for("size", &[1.0, 2.5]).build().unwrap();
    let odd = [("path", "C:\\DIR\n\"x\""), ("a", "ü")];
    registry.counter("hits_total", "Hits,\nall \\ of them.", &odd).unwrap().increment(u64::MAX);
    registry.gauge("temperature", "", &[]).unwrap().set(-2.75);
    let size = registry.histogram("size", "Sizes.", &[("of", "all")]).unwrap();
    for value in [0.5, 1.0, 2.5, 7.0] {
        size.record(value);
    }
    size.record_many(0.125, 2);
    registry.histogram("size", "Sizes.", &[]).unwrap();
    let wanted = r#"# HELP hits_total Hits,\nall \\ of them.
# TYPE hits_total counter
hits_total{a="ü",path="C:\\DIR\n\"x\""} 18446744073709551615
# TYPE temperature gauge
temperature -2.75
# HELP size Sizes.
# TYPE size histogram
size_bucket{of="all",le="1.0"} 4
size_bucket{of="all",le="2.5"} 5
size_bucket{of="all",le="+Inf"} 6
size_sum{of="all"} 11.25
size_count{of="all"} 6
size_bucket{le="1.0"} 0
size_bucket{le="2.5"} 0
size_bucket{le="+Inf"} 0
size_sum 0
size_count 0
"#;
    assert_eq!(registry.render(), wanted);
}

#[test]
fn another_parser_reads_the_same_values() {
    let registry = Registry::new();
    registry.counter("hits_total", "Hits.", &[("path", "/a b")]).unwrap().increment(7);
    let gauge = registry.gauge("load", "Load.", &[]).unwrap();
    let time = registry.histogram("time_seconds", "Time.", &[("method", "get")]).unwrap();
    (0..100).for_each(|i| time.record(f64::from(i) / 100.0));
    for value in [0.1, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        gauge.set(value);
        let lines = registry.render().lines().map(|line| Ok(line.to_owned())).collect::<Vec<_>>();
        let scrape = Scrape::parse(lines.into_iter()).unwrap();
        let sample = |name: &str| {
            let mut of_name = scrape.samples.iter().filter(|sample| sample.metric == name);
            of_name.next().unwrap_or_else(|| panic!("there is no {name}"))
        };
        assert_eq!(sample("hits_total").value, Value::Counter(7.0));
        assert_eq!(sample("hits_total").labels.get("path"), Some("/a b"));
        let Value::Gauge(read) = sample("load").value else { panic!("load is not a gauge") };
        assert!(read == value || read.is_nan() && value.is_nan(), "{read} for {value}");
        let Value::Histogram(buckets) = &sample("time_seconds").value else {
            panic!("time_seconds is not a histogram")
        };
        let counts: Vec<f64> = buckets.iter().map(|bucket| bucket.count).collect();
        assert_eq!(
            counts,
            [1.0, 2.0, 3.0, 6.0, 11.0, 26.0, 51.0, 100.0, 100.0, 100.0, 100.0, 100.0]
        );
        assert_eq!(scrape.docs.get("load").map(String::as_str), Some("Load."));
    }
}

#[test]
fn infinities_and_nan_are_counted_but_not_summed() {
    let registry = Registry::builder().default_buckets(&[0.0]).build().unwrap();
    let odd = registry.histogram("odd", "", &[]).unwrap();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 0.5] {
        odd.record(value);
    }
    let text = registry.render();
    assert!(
        text.contains("odd_bucket{le=\"0.0\"} 2\nodd_bucket{le=\"+Inf\"} 6\nodd_sum 0.5\n"),
        "{text}"
    );
}

#[test]
fn billionths_are_carried_before_they_overflow() {
    let registry = Registry::new();
    let time = registry.histogram("time", "", &[]).unwrap();
    const MANY: u64 = 1 << 33;
    for round in 1..=8 {
        time.record_many(0.75, MANY);
        let sum = format!("time_sum {}\n", round * (MANY / 4 * 3));
        assert!(registry.render().contains(&sum), "{sum} in {}", registry.render());
    }
}

#[test]
fn absolute_never_decreases_a_counter() {
    let registry = Registry::builder().group("g", &["member"]).build().unwrap();
    for name in ["own_total", "member_total"] {
        let counter = registry.counter(name, "", &[]).unwrap();
        for (value, wanted) in [(5, 5), (3, 5), (8, 8)] {
            counter.absolute(value);
            assert!(registry.render().contains(&format!("\n{name} {wanted}\n")));
        }
        counter.increment(1);
        counter.absolute(u64::MAX);
        assert!(registry.render().contains(&format!("\n{name} {}\n", u64::MAX)));
    }
}
