//! A scrape allocates nothing for each series. In a program of its own, which counts allocations.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use thiscpu_metrics::{Format, Registry};

/// The system's allocator; it counts calls that return memory.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are those of the system's allocator, with the arguments of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: the test has one thread.
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller passes a layout of nonzero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is from the function above or below, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the block is from the function above or this one, with this layout.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns a registry with `series` series of each kind.
fn registry(series: usize) -> Registry {
    let registry = Registry::new();
    for number in 0..series {
        let number = number.to_string();
        let labels = [("number", &*number)];
        registry.counter("requests", "Requests.", &labels).unwrap().increment(1);
        registry.gauge("level", "A level.", &labels).unwrap().set(0.25);
        registry.histogram("seconds", "Times.", &labels).unwrap().record(0.5);
    }
    registry
}

/// Returns how many allocations a scrape makes, after the first one.
fn allocations(registry: &Registry, format: Format) -> u64 {
    let scrape = || {
        let before = CALLS.load(Relaxed);
        let text = registry.render_as(format);
        assert!(text.contains("number="), "{text}");
        CALLS.load(Relaxed) - before
    };
    scrape();
    scrape()
}

#[test]
fn scrape_allocates_nothing_for_each_series() {
    let registries = [1_000, 10_000].map(registry);
    for format in [Format::Text, Format::OpenMetrics] {
        let [few, many] = [0, 1].map(|number| allocations(&registries[number], format));
        // A text that outgrows its estimate is moved a few times more often.
        assert!(many <= few + 8, "{format:?}: {many} allocations, and {few} for a tenth");
    }
}
