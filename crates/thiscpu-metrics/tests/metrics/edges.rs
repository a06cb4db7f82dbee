//! Calls use little stack and are no cancellation points.

use std::hint::black_box;
use std::sync::OnceLock;

use thiscpu_metrics::{Counter, Gauge, Histogram, Registry};
use thiscpu_test_support::cancellation::is_survived;
use thiscpu_test_support::{child, painted_stack};

struct Handles {
    registry: Registry,
    own: Counter,
    member: Counter,
    level: Gauge,
    time: Histogram,
}

static HANDLES: OnceLock<Handles> = OnceLock::new();

fn handles() -> &'static Handles {
    HANDLES.get().expect("handles")
}

fn make() {
    let registry = Registry::builder().group("g", &["member"]).build().unwrap();
    let own = registry.counter("own", "", &[]).unwrap();
    let member = registry.counter("member", "", &[]).unwrap();
    let level = registry.gauge("level", "", &[]).unwrap();
    let time = registry.histogram("time", "", &[]).unwrap();
    assert!(HANDLES.set(Handles { registry, own, member, level, time }).is_ok());
}

/// Uses each handle as signal handlers may, often enough to take memory in the lanes.
fn use_handles() {
    let handles = handles();
    for number in 0..3000 {
        handles.own.increment(1);
        handles.member.increment(1 << 20);
        handles.level.increment(1.0);
        handles.level.decrement(2.0);
        handles.time.record(f64::from(number));
    }
}

fn make_and_use() {
    make();
    use_handles();
}

fn use_registry() {
    let handles = handles();
    handles.level.set(0.5);
    handles.own.absolute(1 << 40);
    black_box(handles.registry.counter("late", "", &[]).is_ok());
    black_box(handles.registry.render());
    black_box(handles.registry.remove("late", &[]));
    // A series with a handle, which is hidden, and a group's.
    black_box(handles.registry.remove("own", &[]));
    black_box(handles.registry.remove_handle(handles.member.clone()));
    black_box(handles.registry.render());
    black_box(handles.registry.remove_matching(&[]));
}

#[test]
fn calls_need_little_stack() {
    let used = |prepare: fn(), call: fn(), limit: usize| {
        let status = child::status_of(|| {
            prepare();
            let used = painted_stack::bytes_used(call);
            eprintln!("{used:6} of {limit:6} bytes");
            i32::from(used > limit)
        });
        assert_eq!(status, 0, "a call that uses too much stack");
    };
    used(make, use_handles, 2 << 10);
    used(make_and_use, use_registry, 16 << 10);
    used(|| (), make, 16 << 10);
}

// All but the creation of a registry, for which the standard library calls `getrandom`.
#[test]
fn calls_survive_pending_cancel() {
    assert!(is_survived(make, use_handles));
    assert!(is_survived(make_and_use, use_registry));
}
