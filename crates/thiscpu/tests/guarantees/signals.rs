//! Signal handlers may add, read, take bounds and release units, whatever code they interrupt.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use thiscpu::{Budget, Counter, Counters};

use crate::common::{
    DecrementOnDrop, Random, Scenario, TIERS, TIERS_AND_SANDBOXES, Tally, scale, scenario, signal,
    to_percpu_mode, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(signals::handler_may_interrupt_add, TIERS_AND_SANDBOXES),
    scenario!(signals::handler_may_interrupt_publish, TIERS),
    scenario!(signals::handler_may_interrupt_sum, TIERS_AND_SANDBOXES),
    scenario!(signals::handler_may_interrupt_snapshot, TIERS),
    scenario!(signals::handler_may_interrupt_set, TIERS),
    scenario!(signals::handler_may_interrupt_compare, TIERS),
    scenario!(signals::bounds_never_wait_in_handler, TIERS),
    scenario!(signals::handler_may_release_in_percpu_mode, TIERS),
    scenario!(signals::handler_may_release_in_shared_mode, TIERS),
    scenario!(signals::answers_hold_when_threads_pause_anywhere, TIERS),
];

static COUNTER: Counter = Counter::new();
static NARROW: Counter = Counter::with_batch(2);
static COUNTERS: Counters<2> = Counters::new();
/// The number of times that the handler has finished.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn add_and_read(_: i32) {
    COUNTER.inc();
    NARROW.add(7);
    COUNTERS.add(1, 1);
    for counter in [&COUNTER, &NARROW] {
        counter.read();
        let bounds = counter.bounds();
        if bounds.low > bounds.high {
            // A handler must not panic.
            // SAFETY: `abort` is async-signal-safe.
            unsafe { libc::abort() };
        }
    }
    HANDLED.fetch_add(1, SeqCst);
}

/// Runs `work` under signals; then each counter is what the handler and `own` have added.
fn under_signals(signals: u64, work: impl FnMut(), own: impl Fn() -> [i64; 2]) {
    signal::handle(libc::SIGUSR1, add_and_read);
    signal::storm(libc::SIGUSR1, &HANDLED, signals, work);
    let (handled, [counter, narrow]) = (HANDLED.load(SeqCst) as i64, own());
    assert_eq!(COUNTER.sum(), handled + counter);
    assert_eq!(NARROW.sum(), 7 * handled + narrow);
    assert_eq!(COUNTERS.snapshot()[1], handled);
}

fn handler_may_interrupt_add() {
    let added = AtomicI64::new(0);
    let work = || {
        (0..100).for_each(|_| COUNTER.add(3));
        added.fetch_add(300, SeqCst);
    };
    under_signals(2000, work, || [added.load(SeqCst), 0]);
}

// With the smallest batch every few adds move a window and publish it.
fn handler_may_interrupt_publish() {
    to_percpu_mode(&NARROW);
    let (added, mut random) = (AtomicI64::new(0), Random::new(1));
    let work = || {
        for _ in 0..100 {
            let n = random.below(200) as i64;
            NARROW.add(n);
            added.fetch_add(n, SeqCst);
        }
    };
    under_signals(2000, work, || [0, added.load(SeqCst)]);
}

// Each of the handler's adds is in the current sum or the next one, and in all later ones.
fn handler_may_interrupt(sum: fn() -> i64) {
    let mut last = 0;
    let work = || {
        let (before, sum) = (HANDLED.load(SeqCst) as i64, sum());
        assert!(before <= sum && sum <= HANDLED.load(SeqCst) as i64 + 1);
        assert!(last <= sum, "{sum} after {last}");
        last = sum;
    };
    under_signals(2000, work, || [0, 0]);
}

fn handler_may_interrupt_sum() {
    to_percpu_mode(&COUNTER);
    handler_may_interrupt(|| COUNTER.sum());
}

fn handler_may_interrupt_snapshot() {
    handler_may_interrupt(|| COUNTERS.snapshot()[1]);
}

// The values that `take` removes count too.
fn handler_may_interrupt_set() {
    let (base, taken) = (AtomicI64::new(0), AtomicI64::new(0));
    let mut round = 0;
    let work = || {
        taken.fetch_add(COUNTER.take(), SeqCst);
        to_percpu_mode(&COUNTER);
        round += 1;
        // A set discards the value, so only the other counter's total is known.
        NARROW.set(NARROW.sum().min(0) + 1000 * round);
        base.store(round, SeqCst);
        assert!(NARROW.sum() >= 1000 * round, "older than the last set");
        taken.fetch_add(COUNTER.take(), SeqCst);
    };
    signal::handle(libc::SIGUSR1, add_and_read);
    signal::storm(libc::SIGUSR1, &HANDLED, 2000, work);
    let handled = HANDLED.load(SeqCst) as i64;
    assert_eq!(COUNTER.sum() + taken.load(SeqCst), handled);
    assert!(NARROW.sum() >= 1000 * base.load(SeqCst));
}

fn handler_may_interrupt_compare() {
    let added = AtomicI64::new(0);
    let mut round = 0;
    let work = || {
        let before = HANDLED.load(SeqCst) as i64;
        assert_ne!(COUNTER.compare(before).ordering, Ordering::Less);
        round += 1;
        if round % 4 == 0 {
            to_percpu_mode(&COUNTER);
            to_percpu_mode(&NARROW);
            NARROW.add(1);
            added.fetch_add(1, SeqCst);
        }
        let after = NARROW.compare(HANDLED.load(SeqCst) as i64 * 7 + added.load(SeqCst) - 1);
        assert_eq!(after.ordering, Ordering::Greater, "{after:?}");
    };
    under_signals(2000, work, || [0, added.load(SeqCst)]);
}

// Threads without a lane write to the shared lane all the time, and the handler interrupts a sum.
//
// Bounds in the handler wait for no thread.
fn bounds_never_wait_in_handler() {
    to_percpu_mode(&COUNTER);
    let (over, added) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                thiscpu::__test_support::leave_lanes();
                while !over.load(SeqCst) {
                    (0..100).for_each(|_| COUNTER.inc());
                    added.fetch_add(100, SeqCst);
                }
            });
        }
        signal::handle(libc::SIGUSR1, add_and_read);
        signal::storm(libc::SIGUSR1, &HANDLED, 2000, || {
            COUNTER.sum();
        });
        over.store(true, SeqCst);
    });
    assert_eq!(COUNTER.sum(), HANDLED.load(SeqCst) as i64 + added.load(SeqCst));
}

static UNITS: Budget = Budget::new(4_000);
/// The number of units that are acquired for the handler to release.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Takes `n` of the units that are acquired for the handler, if there are as many.
fn take_left(n: u64) -> Option<u64> {
    LEFT.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(n)).is_ok().then_some(n)
}

extern "C" fn release_some(_: i32) {
    for n in [1, 1, 30].into_iter().filter_map(take_left) {
        UNITS.release(n);
    }
    HANDLED.fetch_add(1, SeqCst);
}

/// Runs random calls on a budget, of which `held` units are in use and for which others wait.
///
/// The handler releases units that the interrupted thread has acquired for it.
fn handler_releases(held: u64) {
    let over = AtomicBool::new(false);
    let wait = || {
        while !over.load(SeqCst) {
            UNITS.acquire(50).expect("open");
            UNITS.release(50);
        }
    };
    UNITS.try_acquire(held).expect("units are available");
    std::thread::scope(|threads| {
        let waiters = [threads.spawn(wait), threads.spawn(wait)];
        let mut random = Random::new(3);
        let work = || {
            let n = 1 + random.below(40);
            if LEFT.load(SeqCst) < 200 && UNITS.try_acquire(n).is_ok() {
                LEFT.fetch_add(n, SeqCst);
            }
            match random.below(6) {
                0 => _ = UNITS.available(),
                1 => _ = UNITS.try_acquire(4_001).expect_err("above the limit"),
                2 => _ = UNITS.acquire_timeout(4_000, Duration::from_micros(20)).unwrap_err(),
                3 => UNITS.set_limit(4_000 - random.below(2)),
                _ => drop(UNITS.lease(60)),
            }
        };
        signal::handle(libc::SIGUSR1, release_some);
        signal::storm(libc::SIGUSR1, &HANDLED, 1000, work);
        UNITS.set_limit(4_000);
        over.store(true, SeqCst);
        UNITS.release(held);
        waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
    });
    assert_eq!(UNITS.acquired(), LEFT.load(SeqCst));
}

fn handler_may_release_in_percpu_mode() {
    handler_releases(1);
}

// Near the limit some thread nearly always waits.
fn handler_may_release_in_shared_mode() {
    handler_releases(3_900);
}

/// The number of spins for which the handler below holds its thread.
static PAUSE: AtomicU64 = AtomicU64::new(0);

extern "C" fn pause(_: i32) {
    (0..PAUSE.load(SeqCst)).for_each(|_| std::hint::spin_loop());
    HANDLED.fetch_add(1, SeqCst);
}

// Threads pause between any two instructions, long enough for others to finish whole operations.
//
// Each answer lies between the adds that finished before and those that began before its end.
fn answers_hold_when_threads_pause_anywhere() {
    const ADDERS: usize = 3;
    const ASKERS: usize = 3;
    for counter in [Counter::new(), Counter::with_batch(2)] {
        to_percpu_mode(&counter);
        let tally = Tally::new(ADDERS);
        let asking = AtomicUsize::new(ASKERS);
        let threads: [AtomicUsize; ADDERS + ASKERS] = Default::default();
        let ask = |random: &mut Random| {
            let (now, _, _) = tally.around(|| ());
            let question = random.below(4);
            let (done, (low, high), begun) = tally.around(|| match question {
                0 => (counter.sum(), counter.sum()),
                1 => (counter.bounds().low, i64::MAX),
                2 => (i64::MIN, counter.bounds().high),
                _ => match counter.compare(now).exact {
                    Some(exact) => (exact, exact),
                    None => (i64::MIN, i64::MAX),
                },
            });
            let holds = low <= begun && done <= high;
            assert!(holds, "question {question}: {low}, {high}, within {done}..{begun}");
        };
        let work = |thread: usize| {
            signal::handle(libc::SIGUSR1, pause);
            threads[thread].store(signal::this_thread() as usize, SeqCst);
            let mut random = Random::new(thread as u64);
            if thread >= ADDERS {
                let _decrement = DecrementOnDrop(&asking);
                (0..scale::rounds(700)).for_each(|_| ask(&mut random));
            }
            while asking.load(SeqCst) > 0 {
                let n = if random.below(8) == 0 { 32_768 } else { random.below(9) };
                if thread < ADDERS {
                    tally.add(thread, n, || counter.add(n as i64));
                }
                std::hint::spin_loop();
            }
            // The sender must not have this thread in hand when it ends.
            while threads[thread].swap(0, SeqCst) == 0 {
                std::thread::yield_now();
            }
        };
        together_while(ADDERS + ASKERS, work, || {
            let mut random = Random::new(50);
            while asking.load(SeqCst) > 0 {
                PAUSE.store(random.below(20_000), SeqCst);
                let slot = &threads[random.below((ADDERS + ASKERS) as u64) as usize];
                // Removed while it is in use, so the thread does not end.
                let thread = slot.swap(0, SeqCst);
                if thread != 0 {
                    signal::send(thread as libc::pthread_t, libc::SIGUSR1);
                    slot.store(thread, SeqCst);
                }
                (0..random.below(4000)).for_each(|_| std::hint::spin_loop());
            }
        });
        let (done, sum, _) = tally.around(|| counter.sum());
        assert_eq!(sum, done);
    }
}
