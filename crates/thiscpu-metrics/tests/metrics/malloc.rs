//! The series of thiscpu-malloc, which this test uses without making it the global allocator.

use thiscpu_malloc::{allocate, free, trim};
use thiscpu_metrics::{Error, Registry};

/// Returns the value of a line.
fn value(text: &str, series: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

#[test]
fn malloc_series_show_the_linked_allocator() {
    const SIZE: usize = 7_168;
    const COUNT: usize = 1_000;
    let registry = Registry::new();
    let requests = registry.counter("requests_total", "", &[]).unwrap();
    requests.increment(3);
    let blocks: Vec<_> = (0..COUNT).map(|_| allocate(SIZE).unwrap()).collect();
    registry.register_malloc().unwrap();
    let again = registry.register_malloc();
    assert!(matches!(again, Err(Error::DuplicateSeries { .. })), "{again:?}");
    let full = registry.render();
    let class = format!("malloc_class_allocated_bytes{{size=\"{SIZE}\"}}");
    assert_eq!(value(&full, &class), Some((SIZE * COUNT) as u64), "{full}");
    assert!(value(&full, "malloc_allocated_bytes").unwrap() >= (SIZE * COUNT) as u64);
    assert!(full.contains("# TYPE malloc_purged_bytes_total counter\n"));
    // Other series are as before.
    assert_eq!(value(&full, "requests_total"), Some(3));
    // A class that was never used has no line.
    assert_eq!(value(&full, "malloc_class_allocated_bytes{size=\"28672\"}"), None);
    // SAFETY: the blocks are allocated, and not used any more.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
    trim(0);
    let empty = registry.render();
    assert_eq!(value(&empty, &class), Some(0), "{empty}");
    let [mapped, resident, retained] = ["mapped", "resident", "retained"]
        .map(|name| value(&empty, &format!("malloc_{name}_bytes")).unwrap());
    assert_eq!(mapped, resident + retained);
    assert!(value(&empty, "malloc_purged_bytes_total").unwrap() >= (SIZE * COUNT) as u64);
}
