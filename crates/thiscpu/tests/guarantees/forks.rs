//! Counters in forked children: they stay exact, whatever other threads did during the fork.

use std::cmp::Ordering;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

use thiscpu::{Counter, Counters, PerCpu};

use crate::common::{
    MIXED, Random, Scenario, SetOnDrop, Steps, TIERS, TIERS_AND_SANDBOXES, assert_bounds_contain,
    can_single_step, fork, fork_at_steps, pass, pin, scale, scenario, to_percpu_mode,
    together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(forks::children_count_exactly, TIERS_AND_SANDBOXES),
    scenario!(forks::children_see_token_once, TIERS),
    scenario!(forks::child_moves_window_claimed_in_parent, TIERS).needs(can_single_step),
    scenario!(forks::grandchildren_count_exactly, TIERS).slow(),
    scenario!(forks::child_may_be_first_user, TIERS),
];

static COUNTER: Counter = Counter::new();
static NARROW: Counter = Counter::with_batch(2);
static COUNTERS: Counters<2> = Counters::new();

/// Asserts that a counter that only the calling thread changes is exact in every operation.
fn assert_exact(counter: &Counter) {
    let before = counter.sum();
    assert_eq!(counter.sum(), before);
    for n in [1, 5, 32_768, -32_768, 60] {
        counter.add(n);
        counter.add(-n);
        assert_bounds_contain(counter, before);
    }
    (0..700).for_each(|_| counter.inc());
    assert_eq!(counter.sum(), before + 700);
    assert_bounds_contain(counter, before + 700);
    assert_eq!(counter.compare(before + 700).ordering, Ordering::Equal);
    assert_eq!(counter.take(), before + 700);
    counter.set(before);
    assert_eq!(counter.sum(), before);
}

/// Uses all counters in a child, first on one thread and then on several.
fn use_all() {
    for counter in [&COUNTER, &NARROW] {
        assert_exact(counter);
    }
    let [first, second] = COUNTERS.snapshot();
    COUNTERS.add(0, 7);
    assert_eq!(COUNTERS.snapshot(), [first + 7, second]);
    let (before, narrow) = (COUNTER.sum(), NARROW.sum());
    let words = PerCpu::<u64>::new();
    together_while(
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

/// Prepares work on the thread that will repeat it.
type Work = fn() -> Box<dyn FnMut()>;

/// Runs `parent` on this thread while others add, sum, publish, compare, set and allocate.
fn while_others_work(parent: impl FnOnce()) {
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
        // The other threads must stop even after a panic here.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(parent));
        over.store(true, SeqCst);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    };
    together_while(4, |thread| until_over(works[thread]()), parent);
}

const FORKS: u64 = 40;

fn children_count_exactly() {
    to_percpu_mode(&COUNTER);
    to_percpu_mode(&NARROW);
    while_others_work(|| {
        let mut random = Random::new(9);
        for number in 0..scale::rounds(FORKS) {
            (0..random.below(5000)).for_each(|_| std::hint::spin_loop());
            fork::run(use_all).unwrap_or_else(|error| panic!("child {number}: {error}"));
        }
    });
    // The parent is exact too, though it forked during all that.
    use_all();
}

// The true value is 0 or 1 at any instant, and so at that of the fork.
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
                assert_bounds_contain(&TOKEN, sum);
                assert_exact(&TOKEN);
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

// Each generation forks while its own threads add and sum.
fn grandchildren_count_exactly() {
    fn generation(left: u32) {
        while_others_work(|| {
            for _ in 0..2 {
                fork::run(|| {
                    use_all();
                    if left > 0 {
                        generation(left - 1);
                    }
                })
                .unwrap_or_else(|error| panic!("{left} generations from the last: {error}"));
            }
        });
        use_all();
    }
    to_percpu_mode(&COUNTER);
    generation(2);
}

fn child_may_be_first_user() {
    fork::run(use_all).expect("the child uses the library before its parent");
    use_all();
    fork::run(use_all).expect("the child uses the library after its parent");
}

// The fork comes while another thread has claimed its lane's window: the child can still move it.
fn child_moves_window_claimed_in_parent() {
    // Where CPUs determine lanes, parent and child use the same lane.
    pin::pin(0);
    let current = AtomicPtr::new(ptr::null_mut::<Counter>());
    // SAFETY: `prepare`, which runs first, has stored a leaked counter.
    let counter = || unsafe { &*current.load(SeqCst) };
    let prepare = || {
        let counter = Box::leak(Box::new(Counter::with_batch(2)));
        to_percpu_mode(counter);
        pin::pin(0);
        current.store(counter, SeqCst);
    };
    const WIDE: i64 = 1 << 20;
    let child = || {
        pin::pin(0);
        let counter = counter();
        // Repeated, because the kernel may move the child to another lane and back.
        let is_wide = (0..10).any(|_| {
            counter.add(WIDE);
            counter.add(-WIDE);
            let bounds = counter.bounds();
            bounds.high.wrapping_sub(bounds.low) >= WIDE
        });
        assert!(is_wide, "the child's adds have not moved the window");
    };
    let add = || counter().add(1000);
    let check = |()| assert_eq!(counter().sum(), 1000);
    fork_at_steps(Steps::Sampled, prepare, add, child, check);
}
