//! A child of fork counts on, and its sums are right, whatever the threads that it lacks were in
//! the middle of.

use std::cmp::Ordering;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu::{Counter, Counters, PerCpu};

use crate::common::random::Random;
use crate::common::single_step::{at_sampled_steps, can_single_step};
use crate::common::threads::{to_percpu_mode, together};
use crate::common::token::{MIXED, SetOnDrop, pass};
use crate::common::{Scenario, TIERS, TIERS_AND_SANDBOXES, fork, pin, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(forks::children_count_exactly, TIERS_AND_SANDBOXES),
    scenario!(forks::children_see_token_once, TIERS),
    scenario!(forks::child_moves_window_claimed_in_parent, TIERS).needs(can_single_step),
    scenario!(forks::grandchildren_count_exactly, TIERS),
    scenario!(forks::child_may_be_first_user, TIERS),
];

static COUNTER: Counter = Counter::new();
static NARROW: Counter = Counter::with_batch(2);
static COUNTERS: Counters<2> = Counters::new();

/// What holds of a counter that only the calling thread changes.
fn assert_counts_on(counter: &Counter) {
    let before = counter.sum();
    assert_eq!(counter.sum(), before);
    for n in [1, 5, 32_768, -32_768, 60] {
        counter.add(n);
        counter.add(-n);
        let bounds = counter.bounds();
        assert!(bounds.low <= before && before <= bounds.high, "{before}: {bounds:?}");
    }
    (0..700).for_each(|_| counter.inc());
    assert_eq!(counter.sum(), before + 700);
    let bounds = counter.bounds();
    assert!(bounds.low <= before + 700 && before + 700 <= bounds.high, "{before}: {bounds:?}");
    assert_eq!(counter.compare(before + 700).ordering, Ordering::Equal);
    assert_eq!(counter.take(), before + 700);
    counter.set(before);
    assert_eq!(counter.sum(), before);
}

/// What a child does: alone, then with threads of its own.
fn live() {
    for counter in [&COUNTER, &NARROW] {
        assert_counts_on(counter);
    }
    let [first, second] = COUNTERS.snapshot();
    COUNTERS.add(0, 7);
    assert_eq!(COUNTERS.snapshot(), [first + 7, second]);
    let (before, narrow) = (COUNTER.sum(), NARROW.sum());
    let words = PerCpu::<u64>::new();
    together(
        2,
        |_| {
            for _ in 0..2000 {
                COUNTER.inc();
                NARROW.add(3);
                words.add(1);
            }
        },
        || {
            (0..10).for_each(|_| assert!(COUNTER.sum() >= before));
        },
    );
    assert_eq!(COUNTER.sum(), before + 4000);
    assert_eq!(NARROW.sum(), narrow + 12_000);
    assert_eq!(words.lanes().sum::<u64>(), 4000);
}

/// Makes, on the thread that will repeat it, something to do.
type Work = fn() -> Box<dyn FnMut()>;

/// Runs `parent` on this thread while others add, sum, publish, compare, set and allocate.
fn amid_everything(parent: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let until_over = |mut work: Box<dyn FnMut()>| {
        while !over.load(SeqCst) {
            work();
        }
    };
    let works: [Work; 4] = [
        || {
            let mut random = Random::new(1);
            Box::new(move || {
                (0..100).for_each(|_| COUNTER.add(random.below(50) as i64));
                (0..100).for_each(|_| NARROW.add(random.below(500) as i64));
                COUNTERS.add(0, 1);
            })
        },
        || {
            Box::new(|| {
                COUNTER.sum();
                NARROW.sum();
                COUNTERS.snapshot();
            })
        },
        || {
            Box::new(|| {
                COUNTER.compare(COUNTER.read());
                NARROW.set(0);
                to_percpu_mode(&COUNTER);
            })
        },
        || {
            thiscpu::__test_support::leave_lanes();
            Box::new(|| {
                drop(PerCpu::<u32>::new());
                let counter = Counter::new();
                to_percpu_mode(&counter);
                COUNTER.inc();
                COUNTERS.add(1, 1);
            })
        },
    ];
    let parent = || {
        // The others end even if this panics.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(parent));
        over.store(true, SeqCst);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    };
    together(4, |thread| until_over(works[thread]()), parent);
}

const FORKS: u64 = 60;

fn children_count_exactly() {
    to_percpu_mode(&COUNTER);
    to_percpu_mode(&NARROW);
    amid_everything(|| {
        let mut random = Random::new(9);
        for number in 0..scale::rounds(FORKS) {
            (0..random.below(5000)).for_each(|_| std::hint::spin_loop());
            fork::run(live).unwrap_or_else(|error| panic!("child {number}: {error}"));
        }
    });
    // And the parent, which forked in the middle of all that.
    live();
}

/// The true value is 0 or 1 at any instant, that of the fork included.
fn children_see_token_once() {
    static TOKEN: Counter = Counter::with_batch(2);
    to_percpu_mode(&TOKEN);
    let over = AtomicBool::new(false);
    let fork_often = |token: &crate::common::token::Token| {
        let _over = SetOnDrop(&over);
        let mut forks = 0;
        while forks < scale::rounds(FORKS) || token.passes() < scale::rounds(200) {
            let child = || {
                let sum = TOKEN.sum();
                assert!(sum == 0 || sum == 1, "{sum}");
                assert_eq!(TOKEN.sum(), sum);
                let bounds = TOKEN.bounds();
                assert!(bounds.low <= sum && sum <= bounds.high, "{sum}: {bounds:?}");
                assert_counts_on(&TOKEN);
            };
            fork::run(child).unwrap_or_else(|error| panic!("child {forks}: {error}"));
            forks += 1;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                let sum = TOKEN.sum();
                assert!(sum == 0 || sum == 1, "{sum}");
                std::thread::yield_now();
            }
        });
        pass(&MIXED, |_, sign| TOKEN.add(sign), fork_often);
    });
}

/// Each generation forks while threads of its own add and sum.
fn grandchildren_count_exactly() {
    fn generation(left: u32) {
        amid_everything(|| {
            for _ in 0..3 {
                fork::run(|| {
                    live();
                    if left > 0 {
                        generation(left - 1);
                    }
                })
                .unwrap_or_else(|error| panic!("{left} generations before the last: {error}"));
            }
        });
        live();
    }
    to_percpu_mode(&COUNTER);
    generation(2);
}

fn child_may_be_first_user() {
    fork::run(live).expect("a child that used the library before its parent");
    live();
    fork::run(live).expect("a child that used the library after its parent");
}

/// A thread that is stopped while it moves its lane's window is not copied, but its right to do so
/// does not go with it: the child moves that window as it needs.
fn child_moves_window_claimed_in_parent() {
    // Parent and child on one lane, where lanes are chosen by CPUs.
    pin::pin(0);
    static NOW: Mutex<Option<&'static Counter>> = Mutex::new(None);
    let now = || NOW.lock().expect("no panic").expect("made before each run");
    let prepare = || {
        let counter: &Counter = Box::leak(Box::new(Counter::with_batch(2)));
        to_percpu_mode(counter);
        pin::pin(0);
        *NOW.lock().expect("no panic") = Some(counter);
    };
    const WIDE: i64 = 1 << 20;
    let conflict = |stop| {
        pin::pin(0);
        let counter = now();
        let moves_it = || {
            // More than once, because a child may be moved to another lane and back.
            let is_wide = (0..10).any(|_| {
                counter.add(WIDE);
                counter.add(-WIDE);
                let bounds = counter.bounds();
                bounds.high.wrapping_sub(bounds.low) >= WIDE
            });
            assert!(is_wide, "at stop {stop} the child's adds find no window that moves");
        };
        fork::run(moves_it).expect("a child that moves windows");
    };
    let add = || now().add(1000);
    at_sampled_steps(prepare, add, conflict, |_, _, ()| assert_eq!(now().sum(), 1000));
}
