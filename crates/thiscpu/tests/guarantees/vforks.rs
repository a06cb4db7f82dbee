//! Children that run on the memory of their parent's thread, in a scope.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};

use thiscpu::{Budget, Counter, Counters, Ledger, PerCpu, vfork_scope};
use thiscpu_test_support::child;

use crate::common::{
    SELF_REGISTERED_ONLY, Scenario, TIERS, TIERS_AND_SANDBOXES, cache_of, close, fork, pin, scale,
    scenario, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(vforks::children_count_exactly, TIERS_AND_SANDBOXES),
    scenario!(vforks::children_allocate, TIERS),
    scenario!(vforks::scopes_nest, TIERS),
    scenario!(vforks::child_may_be_first_user, TIERS),
    scenario!(vforks::child_does_not_register_its_parent, SELF_REGISTERED_ONLY),
    scenario!(vforks::scope_ends, TIERS),
    scenario!(vforks::fork_may_take_the_place_of_vfork, TIERS),
];

/// Runs `body` in a child that has this thread's memory. There is no scope.
fn vfork(body: impl FnMut()) {
    assert_eq!(child::on_this_memory(body).expect("a process"), 0, "the child failed");
}

static COUNTER: Counter = Counter::new();
static NARROW: Counter = Counter::with_batch(2);
static COUNTERS: Counters<2> = Counters::new();

fn children_count_exactly() {
    let words = PerCpu::<u64>::new();
    let budget = Budget::new(1 << 40);
    let ledger = Ledger::<2>::new();
    let account = ledger.open();
    let done = AtomicI64::new(0);
    let work = |times: i64| {
        for _ in 0..times {
            COUNTER.inc();
            NARROW.add(3);
            COUNTERS.add(1, 1);
            words.add(1);
            words.add_return(1);
            budget.try_acquire(2).expect("units");
            budget.release(1);
            account.charge(1, 1);
        }
        done.fetch_add(times, SeqCst);
    };
    let over = AtomicBool::new(false);
    together_while(
        3,
        |thread| {
            pin::pin(thread);
            while !over.load(SeqCst) {
                work(100);
            }
        },
        || {
            for round in 0..scale::rounds(100) as usize {
                pin::pin(round);
                work(20);
                let scope = vfork_scope();
                vfork(|| {
                    // The child alone moves to another CPU.
                    pin::pin(round + 1);
                    work(1000);
                });
                drop(scope);
                work(20);
            }
            over.store(true, SeqCst);
        },
    );
    let done = done.load(SeqCst);
    assert_eq!(COUNTER.sum(), done);
    assert_eq!(NARROW.sum(), 3 * done);
    assert_eq!(COUNTERS.snapshot(), [0, done]);
    assert_eq!(words.lanes().sum::<u64>(), 2 * done as u64);
    assert_eq!(budget.acquired(), done as u64);
    assert_eq!(account.snapshot()[1], done);
    budget.release(done as u64);
}

fn children_allocate() {
    let cache = cache_of(64);
    let over = AtomicBool::new(false);
    let churn = |first: u64, times: usize| {
        for round in 0..times {
            let mut objects = crate::common::alloc_many(&cache, first + round as u64, 30);
            assert!(objects.iter_mut().all(|object| object.is_intact()), "two owners");
            crate::common::free_all(&cache, objects);
        }
    };
    together_while(
        3,
        |thread| {
            pin::pin(thread);
            while !over.load(SeqCst) {
                churn(thread as u64 * 1000, 20);
            }
        },
        || {
            for round in 0..scale::rounds(100) as usize {
                pin::pin(round);
                churn(9000, 2);
                let scope = vfork_scope();
                vfork(|| {
                    pin::pin(round + 1);
                    churn(5000, 50);
                });
                drop(scope);
                churn(9000, 2);
            }
            over.store(true, SeqCst);
        },
    );
    close(cache);
}

/// Returns whether this thread has a lane now.
fn has_lane() -> bool {
    static MARK: LazyLock<PerCpu<u64>> = LazyLock::new(PerCpu::new);
    static LAST: AtomicU64 = AtomicU64::new(0);
    let mark = LAST.fetch_add(1, SeqCst) + 1;
    MARK.xchg(mark);
    MARK.lanes().position(|value| value == mark).expect("the mark") != 0
}

fn scopes_nest() {
    let had_lane = has_lane();
    let outer = vfork_scope();
    for _ in 0..3 {
        let inner = vfork_scope();
        vfork(|| {
            let grandchildren = vfork_scope();
            vfork(|| COUNTER.add(1));
            drop(grandchildren);
            pin::pin(1);
            assert_eq!(has_lane(), thiscpu::tier() == Ok(thiscpu::Tier::Atomic));
            COUNTER.add(1);
        });
        drop(inner);
        assert_eq!(has_lane(), thiscpu::tier() == Ok(thiscpu::Tier::Atomic));
    }
    drop(outer);
    assert_eq!(has_lane(), had_lane);
    assert_eq!(COUNTER.sum(), 6);
}

fn child_may_be_first_user() {
    const ADDS: u64 = 100_000;
    let scope = vfork_scope();
    vfork(|| {
        pin::pin(1);
        (0..1000).for_each(|_| COUNTER.inc());
    });
    drop(scope);
    pin::pin(0);
    together(3, |thread| {
        pin::pin(thread);
        (0..ADDS).for_each(|_| COUNTER.inc());
    });
    (0..1000).for_each(|_| COUNTER.inc());
    assert_eq!(COUNTER.sum(), 2000 + 3 * ADDS as i64);
}

// The process has started; the thread's first user is its child.
fn child_does_not_register_its_parent() {
    assert!(has_lane());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let scope = vfork_scope();
            vfork(|| assert!(!has_lane()));
            drop(scope);
            // The library registers the thread now, so the kernel aborts its sections.
            let left = AtomicU64::new(0);
            let aborted = (0..1000).any(|_| {
                thiscpu::__test_support::spin(1 << 24, &left).expect("a tier") == Some(true)
            });
            assert!(aborted, "the kernel does not know the thread");
        });
    });
}

fn scope_ends() {
    COUNTER.inc();
    let had_lane = has_lane();
    let cache = cache_of(64);
    crate::common::free_all(&cache, crate::common::alloc_many(&cache, 0, 50));
    let had_direct = thiscpu::__test_support::is_direct_enabled();
    let scope = vfork_scope();
    assert!(!thiscpu::__test_support::is_direct_enabled());
    crate::common::free_all(&cache, crate::common::alloc_many(&cache, 0, 500));
    assert!(!thiscpu::__test_support::is_direct_enabled());
    drop(scope);
    crate::common::free_all(&cache, crate::common::alloc_many(&cache, 0, 50));
    assert_eq!(thiscpu::__test_support::is_direct_enabled(), had_direct);
    assert_eq!(has_lane(), had_lane);
    close(cache);
}

// Emulators do that. A process that a child of `vfork` forks is in that state too.
fn fork_may_take_the_place_of_vfork() {
    COUNTER.inc();
    let had_lane = has_lane();
    let use_without_lane = || {
        assert_eq!(has_lane(), thiscpu::tier() == Ok(thiscpu::Tier::Atomic));
        let before = COUNTER.sum();
        (0..1000).for_each(|_| COUNTER.inc());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                assert_eq!(has_lane(), had_lane);
                (0..1000).for_each(|_| COUNTER.inc());
            });
        });
        assert_eq!(COUNTER.sum(), before + 2000);
    };
    let scope = vfork_scope();
    fork::run(use_without_lane).expect("the child");
    vfork(|| fork::run(use_without_lane).expect("the grandchild"));
    drop(scope);
    assert_eq!(has_lane(), had_lane);
    assert_eq!(COUNTER.sum(), 1);
}
