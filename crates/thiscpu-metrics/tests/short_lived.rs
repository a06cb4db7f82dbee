//! Many short-lived series leave nothing: a million in a full run. The test has a program of its
//! own, because it measures the memory of the whole process.

use thiscpu_metrics::Registry;
use thiscpu_test_support::{Level, is_quick, level, memory};

/// Returns how many series there are at a time.
fn at_a_time() -> usize {
    if is_quick() { 10_000 } else { 50_000 }
}

/// Returns the bytes of blocks that the program has not freed.
fn in_use() -> usize {
    // SAFETY: only reads statistics.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Adds series with labels of their own, uses them, and removes them in one of three ways.
fn come_and_go(registry: &Registry, round: usize) {
    let add = |number: usize| {
        let labels = [("round", &*round.to_string()), ("number", &*number.to_string())];
        let series = registry.counter("requests", "", &labels).unwrap();
        series.increment(1);
        series
    };
    let all: Vec<_> = (0..at_a_time()).map(add).collect();
    let remove_all = || registry.remove_matching(&[("round", &round.to_string())]);
    match round % 3 {
        0 => assert!(all.into_iter().all(|series| registry.remove_handle(series))),
        1 => {
            drop(all);
            assert_eq!(remove_all(), at_a_time());
        }
        // The next scrape frees them.
        _ => assert_eq!(remove_all(), at_a_time()),
    }
}

#[test]
fn many_short_lived_series_leave_nothing() {
    let rounds = match level() {
        Level::Quick => 3,
        Level::Usual => 6,
        Level::Full => 20,
    };
    let registry = Registry::new();
    let lasting = registry.counter("lasting", "", &[]).unwrap();
    let samples = || {
        lasting.increment(1);
        registry.render().lines().filter(|line| !line.starts_with('#')).count()
    };
    assert_eq!(samples(), 1);
    let before = in_use();
    let mut resident = Vec::new();
    for round in 0..rounds {
        come_and_go(&registry, round);
        assert_eq!(samples(), 1);
        let left = in_use().saturating_sub(before);
        assert!(left < 256 << 10, "{left} bytes after round {round}");
        resident.push(memory::status_bytes("self", "VmRSS").unwrap());
    }
    // What the first rounds took serves all others.
    let (first, others) = resident.split_at(3);
    let largest = first.iter().max().unwrap();
    assert!(others.iter().all(|bytes| bytes < &(largest * 3 / 2)), "{resident:?}");
}
