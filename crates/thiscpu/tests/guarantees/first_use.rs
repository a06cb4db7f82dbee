//! A process's first use of the library: in a signal handler, interrupted by one, or on many
//! threads.
//!
//! A process has only one first use, so each try forks a process that has not used the library yet.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use thiscpu::{Counter, Counters, PerCpu};

use crate::common::fork::{self, SignalOutcome};
use crate::common::{
    Random, Scenario, TIERS, TIERS_AND_SANDBOXES, scale, scenario, signal, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(first_use::works_in_signal_handler, TIERS_AND_SANDBOXES),
    scenario!(first_use::survives_signals_at_random_times, TIERS),
    scenario!(first_use::survives_signal_after_each_syscall, TIERS_AND_SANDBOXES)
        .needs(fork::can_trace),
    scenario!(first_use::works_on_many_threads_at_once, TIERS),
];

static COUNTER: Counter = Counter::new();
static COUNTERS: Counters<2> = Counters::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Enough adds to make the counter take lanes within one handler.
const BURST: i64 = 40;

extern "C" fn burst(_: i32) {
    (0..BURST).for_each(|_| {
        COUNTER.inc();
        COUNTERS.add(1, 1);
    });
    HANDLED.fetch_add(1, SeqCst);
}

/// Uses the library for the first time in this process, and some more.
fn use_it() {
    (0..100).for_each(|_| COUNTER.inc());
    (0..100).for_each(|_| COUNTERS.add(0, 1));
}

fn assert_exact() {
    let handled = HANDLED.load(SeqCst) as i64;
    assert_eq!(COUNTER.sum(), 100 + handled * BURST);
    assert_eq!(COUNTERS.snapshot(), [100, handled * BURST]);
    // All goes on with lanes, some of which a handler has set up.
    together(2, |_| (0..2000).for_each(|_| COUNTER.inc()));
    assert_eq!(COUNTER.sum(), 4100 + handled * BURST);
    let words = PerCpu::<u64>::new();
    words.add(1);
    assert_eq!(words.lanes().sum::<u64>(), 1);
}

fn works_in_signal_handler() {
    signal::handle(libc::SIGUSR1, burst);
    signal::send(signal::this_thread(), libc::SIGUSR1);
    use_it();
    assert_eq!(HANDLED.load(SeqCst), 1);
    assert_exact();
}

fn survives_signals_at_random_times() {
    signal::handle(libc::SIGUSR1, burst);
    let mut random = Random::new(5);
    for _ in 0..scale::rounds(120) {
        let longest = 1 + random.below(200_000);
        let child = || {
            signal::send_after(libc::SIGUSR1, longest);
            use_it();
            while HANDLED.load(SeqCst) == 0 {
                COUNTERS.add(0, 0);
            }
            assert_exact();
        };
        fork::run(child).expect("an exact child");
    }
}

// The signal comes when the first system call of the first use returns, then the second, and so on.
fn survives_signal_after_each_syscall() {
    signal::handle(libc::SIGUSR1, burst);
    let mut call = 1;
    while let SignalOutcome::Delivered =
        fork::signal_after_call(call, libc::SIGUSR1, use_it, || {
            assert_eq!(HANDLED.load(SeqCst), 1);
            assert_exact();
        })
    {
        call += 1;
    }
    assert!(call > 3, "the first use made only {call} system calls");
}

fn works_on_many_threads_at_once() {
    for _ in 0..scale::rounds(60) {
        let child = || {
            together(6, |_| use_it());
            assert_eq!(COUNTER.sum(), 600);
            assert_eq!(COUNTERS.snapshot(), [600, 0]);
        };
        fork::run(child).expect("an exact child");
    }
}
