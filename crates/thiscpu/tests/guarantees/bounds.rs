//! `Counter::bounds`: bounds hold during updates and sums, and while threads are stopped midway.
//!
//! Their width depends on the number of CPUs in use, not of threads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Bounds, Counter};

use crate::common::{
    Adder, DecrementOnDrop, MIXED, PINNED, Random, Scenario, TIERS, TIERS_AND_SANDBOXES, Tally,
    leave_lanes_if, pass_while_asking, pin, scale, scenario, signal, to_percpu_mode, together,
    together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(bounds::contain_moving_token, TIERS_AND_SANDBOXES),
    scenario!(bounds::contain_large_moving_token, TIERS),
    scenario!(bounds::contain_concurrent_adds, TIERS_AND_SANDBOXES),
    scenario!(bounds::hold_while_threads_are_stopped, TIERS),
    scenario!(bounds::width_is_independent_of_threads, TIERS).slow(),
    scenario!(bounds::follow_set, TIERS),
];

/// Asserts that the bounds contain 0 or `amount`, and their own estimate.
fn assert_token(bounds: Bounds, amount: i64) {
    let Bounds { low, estimate, high } = bounds;
    assert!(low <= amount && high >= 0, "{bounds:?} contain neither 0 nor {amount}");
    assert!(low <= estimate && estimate <= high, "{bounds:?}");
}

/// Passes a token of `amount` while other threads take bounds, sums and comparisons.
fn token_bounds(counter: &Counter, adders: &[Adder], amount: i64) {
    pass_while_asking(counter, adders, amount, |token, asker| {
        let mut random = Random::new(asker as u64);
        let mut asked = 0;
        while token.keep_asking(&mut asked, 4000, 1000) {
            assert_token(counter.bounds(), amount);
            match random.below(60) {
                0..3 if asker == 0 => drop(counter.sum()),
                3 if asker == 0 => drop(counter.compare(random.below(3) as i64 - 1)),
                _ => {}
            }
        }
    });
    assert_token(counter.bounds(), amount);
}

fn contain_moving_token() {
    token_bounds(&Counter::with_batch(64), &PINNED, 1);
    token_bounds(&Counter::new(), &MIXED, 1);
}

// One amount is larger than a small batch, the other larger than any window.
fn contain_large_moving_token() {
    token_bounds(&Counter::with_batch(64), &PINNED, 32_768);
    token_bounds(&Counter::new(), &MIXED, 32_768);
    token_bounds(&Counter::new(), &MIXED, 1 << 50);
}

// `high` is at least the total of finished adds, and `low` at most the total of begun ones.
fn contain_concurrent_adds() {
    const ADDERS: usize = 4;
    for counter in [Counter::new(), Counter::with_batch(2), Counter::with_batch(1 << 20)] {
        to_percpu_mode(&counter);
        let tally = Tally::new(ADDERS);
        let asking = AtomicUsize::new(2);
        let work = |thread: usize| {
            let mut random = Random::new(thread as u64);
            leave_lanes_if(thread == 3);
            while thread < ADDERS && asking.load(SeqCst) > 0 {
                let n = if random.below(8) == 0 { 32_768 } else { random.below(9) };
                tally.add(thread, n, || counter.add(n as i64));
            }
            if thread >= ADDERS {
                let _decrement = DecrementOnDrop(&asking);
                for round in 0..scale::rounds(3000) {
                    let (done, bounds, begun) = tally.around(|| counter.bounds());
                    let Bounds { low, high, .. } = bounds;
                    assert!(low <= begun && done <= high, "{done}..{begun}: {bounds:?}");
                    if thread == ADDERS && round % 32 == 0 {
                        counter.compare(begun);
                    }
                }
            }
        };
        together(ADDERS + 2, work);
    }
}

/// The number of the current stop, at which the handler below holds its thread.
static STOP: AtomicU64 = AtomicU64::new(0);
/// The number of the last stop that has ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// The number of threads that are held.
static HELD: AtomicU64 = AtomicU64::new(0);

extern "C" fn hold(_: i32) {
    let stop = STOP.load(SeqCst);
    HELD.fetch_add(1, SeqCst);
    while ENDED.load(SeqCst) < stop {
        std::thread::yield_now();
    }
}

/// Repeats `work` on `adders` threads, and stops all of them `times` times at random places.
///
/// `work` gets the number of its thread. While the threads are stopped, `check` runs.
fn stop_adders(adders: usize, times: u64, work: impl Fn(usize) + Sync, check: impl Fn()) {
    signal::handle(libc::SIGUSR1, hold);
    let threads: Vec<AtomicUsize> = (0..adders).map(|_| AtomicUsize::new(0)).collect();
    let over = AtomicBool::new(false);
    let body = |thread: usize| {
        threads[thread].store(signal::this_thread() as usize, SeqCst);
        while !over.load(SeqCst) {
            work(thread);
        }
    };
    together_while(adders, body, || {
        while threads.iter().any(|thread| thread.load(SeqCst) == 0) {
            std::thread::yield_now();
        }
        for stop in 1..=scale::rounds(times) {
            HELD.store(0, SeqCst);
            STOP.store(stop, SeqCst);
            for thread in &threads {
                signal::send(thread.load(SeqCst) as libc::pthread_t, libc::SIGUSR1);
            }
            while HELD.load(SeqCst) < adders as u64 {
                std::thread::yield_now();
            }
            // An uncaught panic would leave the threads held forever.
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check));
            ENDED.store(stop, SeqCst);
            if let Err(panic) = checked {
                over.store(true, SeqCst);
                std::panic::resume_unwind(panic);
            }
        }
        over.store(true, SeqCst);
    });
}

// Threads are stopped during adds and publishing: each may have one add that is in doubt.
fn hold_while_threads_are_stopped() {
    const ADDERS: usize = 4;
    static COUNTER: Counter = Counter::with_batch(2);
    to_percpu_mode(&COUNTER);
    let tally = Tally::new(ADDERS);
    let add = |thread: usize| {
        for n in [1, 100, 1, 32_768, 60, 1000] {
            tally.add(thread, n, || COUNTER.add(n as i64));
        }
    };
    stop_adders(ADDERS, 300, add, || {
        let (done, bounds, begun) = tally.around(|| COUNTER.bounds());
        let Bounds { low, high, .. } = bounds;
        assert!(low <= begun && done <= high, "{done}..{begun}: {bounds:?}");
    });
}

// Threads that are stopped during adds do not widen the bounds; only CPUs in use do.
fn width_is_independent_of_threads() {
    static COUNTER: Counter = Counter::with_batch(128);
    to_percpu_mode(&COUNTER);
    stop_adders(
        32,
        40,
        |thread| (0..50).for_each(|_| COUNTER.add(if thread % 2 == 0 { 1 } else { -1 })),
        || {
            let Bounds { low, high, .. } = COUNTER.bounds();
            // Read each time, because more CPUs may come online and more lanes into use.
            let lanes = thiscpu::system_info().expect("a tier").lanes_in_use.max(pin::cpus().len());
            // Each of a lane's two banks may drift by its window, which is twice the batch on
            // either side, and by as much again while the window moves. The rest is for rounding.
            let widest = lanes as i64 * 2 * 128 * 2 * 8;
            assert!(high - low <= widest, "{low}..{high} is wider than {widest}");
        },
    );
}

// No thread sees the old value after `set` returned, or the new one before `set` began.
fn follow_set() {
    const STEP: i64 = 1_000_000_000;
    static COUNTER: Counter = Counter::with_batch(2);
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let setting = AtomicBool::new(true);
    let work = |thread: usize| match thread {
        0 => {
            for base in 1..=scale::rounds(200) {
                begun.store(base, SeqCst);
                COUNTER.set(base as i64 * STEP);
                done.store(base, SeqCst);
                to_percpu_mode(&COUNTER);
            }
            setting.store(false, SeqCst);
        }
        1 => {
            while setting.load(SeqCst) {
                COUNTER.inc();
                COUNTER.dec();
            }
        }
        _ => {
            while setting.load(SeqCst) {
                let oldest = done.load(SeqCst) as i64 * STEP;
                let bounds = COUNTER.bounds();
                let newest = begun.load(SeqCst) as i64 * STEP + 3;
                assert!(
                    bounds.low <= newest && oldest - 3 <= bounds.high,
                    "{oldest}..{newest}: {bounds:?}"
                );
            }
        }
    };
    together(4, work);
}
