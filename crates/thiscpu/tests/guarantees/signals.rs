//! A signal handler may add, read, take bounds and release units, whatever it interrupts; nothing is lost.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use thiscpu::{Budget, Counter, Counters};

use crate::common::random::Random;
use crate::common::threads::{DecrementOnDrop, Tally, to_percpu_mode, together};
use crate::common::{Scenario, TIERS, TIERS_AND_SANDBOXES, scale, scenario, signal};

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
/// How often the handler ran to its end.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn add_and_look(_: i32) {
    COUNTER.inc();
    NARROW.add(7);
    COUNTERS.add(1, 1);
    for counter in [&COUNTER, &NARROW] {
        counter.read();
        let bounds = counter.bounds();
        if bounds.low > bounds.high {
            // SAFETY: aborting is allowed in a handler; a panic is not.
            unsafe { libc::abort() };
        }
    }
    HANDLED.fetch_add(1, SeqCst);
}

/// Runs `work` under signals. In the end each counter is what the handler added and `own`.
fn under_signals(signals: u64, work: impl FnMut(), own: impl Fn() -> [i64; 2]) {
    signal::handle(libc::SIGUSR1, add_and_look);
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

/// The smallest batch, so that every few adds move a window and publish it.
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

/// The handler's adds are in this sum or in the next, and none goes away again.
fn handler_may_interrupt_sum() {
    to_percpu_mode(&COUNTER);
    let mut last = 0;
    let work = || {
        let before = HANDLED.load(SeqCst) as i64;
        let sum = COUNTER.sum();
        assert!(before <= sum && sum <= HANDLED.load(SeqCst) as i64 + 1);
        assert!(last <= sum, "{sum} after {last}");
        last = sum;
    };
    under_signals(2000, work, || [0, 0]);
}

fn handler_may_interrupt_snapshot() {
    let mut last = 0;
    let work = || {
        let before = HANDLED.load(SeqCst) as i64;
        let [_, sum] = COUNTERS.snapshot();
        assert!(before <= sum && sum <= HANDLED.load(SeqCst) as i64 + 1);
        assert!(last <= sum, "{sum} after {last}");
        last = sum;
    };
    under_signals(2000, work, || [0, 0]);
}

/// What `set` and `take` replace is counted too.
fn handler_may_interrupt_set() {
    let (base, taken) = (AtomicI64::new(0), AtomicI64::new(0));
    let mut round = 0;
    let work = || {
        taken.fetch_add(COUNTER.take(), SeqCst);
        to_percpu_mode(&COUNTER);
        round += 1;
        // A set forgets what was there, so only the other counter's total can be told after one.
        NARROW.set(NARROW.sum().min(0) + 1000 * round);
        base.store(round, SeqCst);
        assert!(NARROW.sum() >= 1000 * round, "older than the last set");
        taken.fetch_add(COUNTER.take(), SeqCst);
    };
    signal::handle(libc::SIGUSR1, add_and_look);
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

/// Threads without a lane change the slow lane all the time: bounds taken in a handler still wait
/// for nobody, though the thread that the handler interrupts is in the middle of a sum.
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
        signal::handle(libc::SIGUSR1, add_and_look);
        signal::storm(libc::SIGUSR1, &HANDLED, 2000, || {
            COUNTER.sum();
        });
        over.store(true, SeqCst);
    });
    assert_eq!(COUNTER.sum(), HANDLED.load(SeqCst) as i64 + added.load(SeqCst));
}

static UNITS: Budget = Budget::new(4_000);
/// Units that were acquired for the handler to release.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Some of the units that are left for the handler, if there are so many.
fn take_left(n: u64) -> Option<u64> {
    LEFT.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(n)).is_ok().then_some(n)
}

extern "C" fn release_some(_: i32) {
    for n in [1, 1, 30].into_iter().filter_map(take_left) {
        UNITS.release(n);
    }
    HANDLED.fetch_add(1, SeqCst);
}

/// The handler releases what the interrupted thread has acquired for it, in the middle of whatever that
/// does with the same budget, while up to `held` units are held by it and others wait for theirs.
fn interrupt_a_budget(held: u64) {
    let over = AtomicBool::new(false);
    let wait = || {
        while !over.load(SeqCst) {
            UNITS.acquire(50);
            UNITS.release(50);
        }
    };
    UNITS.try_acquire(held).expect("so many are free");
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
        signal::storm(libc::SIGUSR1, &HANDLED, 2000, work);
        UNITS.set_limit(4_000);
        over.store(true, SeqCst);
        UNITS.release(held);
        waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
    });
    assert_eq!(UNITS.acquired(), LEFT.load(SeqCst));
}

fn handler_may_release_in_percpu_mode() {
    interrupt_a_budget(1);
}

/// Near the limit, so that some wait nearly always.
fn handler_may_release_in_shared_mode() {
    interrupt_a_budget(3_900);
}

/// How long the handler below stays, in turns of a loop.
static PAUSE: AtomicU64 = AtomicU64::new(0);

extern "C" fn pause(_: i32) {
    (0..PAUSE.load(SeqCst)).for_each(|_| std::hint::spin_loop());
    HANDLED.fetch_add(1, SeqCst);
}

/// Adders and those who ask are held up anywhere, between any two instructions, for long enough
/// that the others go through whole operations: answers stay between what was added before and
/// what had begun to be added after.
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
            // Nobody sends to a thread that has ended.
            while threads[thread].swap(0, SeqCst) == 0 {
                std::thread::yield_now();
            }
        };
        together(ADDERS + ASKERS, work, || {
            let mut random = Random::new(50);
            while asking.load(SeqCst) > 0 {
                PAUSE.store(random.below(20_000), SeqCst);
                let slot = &threads[random.below((ADDERS + ASKERS) as u64) as usize];
                // Taken out while it is used, so that the thread stays for as long.
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
