//! Handles work in signal handlers and in children of `fork`.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
use std::time::Duration;

use thiscpu_metrics::{Counter, Gauge, Histogram, Registry};
use thiscpu_test_support::child;

use crate::threads::value;

struct Handles {
    own: Counter,
    member: Counter,
    level: Gauge,
    time: Histogram,
}

impl Handles {
    fn new() -> (Registry, Handles) {
        let registry = Registry::builder().group("g", &["member"]).build().unwrap();
        let own = registry.counter("own", "", &[]).unwrap();
        let member = registry.counter("member", "", &[]).unwrap();
        let level = registry.gauge("level", "", &[]).unwrap();
        let time = registry.histogram("time", "", &[]).unwrap();
        (registry, Handles { own, member, level, time })
    }

    /// Uses each handle once.
    fn use_all(&self) {
        self.own.increment(1);
        self.member.increment(1);
        self.level.increment(1.0);
        self.time.record(1.0);
    }
}

/// Returns whether each handle was used `times` times.
fn have_all(registry: &Registry, times: u64) -> bool {
    let text = registry.render();
    let all = ["own_total", "member_total", "level", "time_count", "time_sum"];
    all.iter().all(|series| value(&text, series) == times as f64)
}

static HANDLES: OnceLock<Handles> = OnceLock::new();
static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    if let Some(handles) = HANDLES.get() {
        handles.use_all();
    }
    SIGNALS.fetch_add(1, SeqCst);
}

#[test]
fn handles_work_in_a_handler_that_interrupts_a_scrape() {
    let (registry, handles) = Handles::new();
    assert!(HANDLES.set(handles).is_ok());
    let handler: extern "C" fn(libc::c_int) = on_signal;
    // SAFETY: the handler only loads a `OnceLock` and uses atomics and handles, all of which are
    // signal-safe.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    // SAFETY: `pthread_self` has no preconditions.
    let scraping = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                // SAFETY: the scope joins this thread before the signaled one can end.
                unsafe { libc::pthread_kill(scraping, libc::SIGUSR1) };
                // Without a pause the signals would leave little time for the scrapes.
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        for _ in 0..300 {
            let _ = registry.render();
        }
        while SIGNALS.load(SeqCst) < 300 {
            std::thread::yield_now();
        }
        is_over.store(true, SeqCst);
    });
    assert!(have_all(&registry, SIGNALS.load(SeqCst)), "{}", registry.render());
}

#[test]
fn child_continues_with_the_parents_values() {
    let (registry, handles) = Handles::new();
    (0..100).for_each(|_| handles.use_all());
    // No thread holds one of this registry's locks.
    child::assert_holds(|| {
        handles.use_all();
        have_all(&registry, 101)
    });
    assert!(have_all(&registry, 100));
}
