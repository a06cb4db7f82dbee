//! Caches of constructed values: forks while values are constructed, dropped and allocated.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

use thiscpu::{Constructed, ConstructedCache};

use crate::common::{
    CID_AND_ATOMIC, Random, Scenario, SetOnDrop, Steps, TIERS, at_sampled_steps, can_single_step,
    fork, fork_at_steps, pin, scale, scenario, together_while,
};
use crate::slab_constructed::{GOES_ON, STAGE, TO_WAIT, Value, WAITS, alive, await_stage, close};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::destructor_may_fork, CID_AND_ATOMIC).slow().needs(can_single_step),
    scenario!(slab::children_keep_constructed_values, TIERS),
    scenario!(slab::child_keeps_constructed_values_at_each_step, CID_AND_ATOMIC)
        .needs(can_single_step)
        .slow(),
];

/// The stage in which no destructor runs.
const IDLE: usize = 0;
/// The stage in which the destructor goes on without a fork.
const SKIPS: usize = 4;
/// The result of the fork in a destructor; -1 before it.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// A value whose destructor waits if `STAGE` asks for it, and then forks.
struct Forks(Value, #[expect(dead_code, reason = "it takes space")] [u64; 1_250]);

impl Drop for Forks {
    fn drop(&mut self) {
        self.0.check();
        if STAGE.compare_exchange(TO_WAIT, WAITS, SeqCst, SeqCst).is_ok() {
            while STAGE.load(SeqCst) == WAITS {
                std::thread::yield_now();
            }
            if STAGE.load(SeqCst) == GOES_ON {
                CHILD.store(fork::fork(), SeqCst);
            }
        }
    }
}

/// Calls `drop_some` whenever `STAGE` asks for it.
///
/// A child that is forked in a destructor returns here, calls `drop_some` twice and exits.
fn drop_on_request(over: &AtomicBool, drop_some: impl Fn()) {
    while !over.load(SeqCst) {
        if STAGE.load(SeqCst) == TO_WAIT {
            CHILD.store(-1, SeqCst);
            drop_some();
            if CHILD.load(SeqCst) == 0 {
                fork::exit_after(|| (0..2).for_each(|_| drop_some()));
            }
            STAGE.store(IDLE, SeqCst);
        }
        std::thread::yield_now();
    }
}

// A destructor forks, at each step of another thread's calls, which may hold a lock of the cache.
//
// The child finishes the destructor and then uses the cache.
fn destructor_may_fork() {
    let cache = &ConstructedCache::new(|| Forks(Value::new(), [5; 1_250]));
    pin::pin(0);
    let mine: Vec<_> = (0..5).map(|_| cache.alloc()).collect();
    let use_some = || {
        let values: Vec<_> = (0..20).map(|_| cache.alloc()).collect();
        values.iter().chain(&mine).for_each(|value| value.0.check());
        let address = |value: &Constructed<Forks>| std::ptr::from_ref(&**value).addr();
        let addresses: BTreeSet<_> = values.iter().chain(&mine).map(address).collect();
        assert_eq!(addresses.len(), 25);
    };
    let drop_some = || {
        use_some();
        cache.shrink();
    };
    let (over, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let prepare = || {
        STAGE.store(TO_WAIT, SeqCst);
        await_stage(WAITS);
    };
    let op = || {
        drop(cache.alloc());
        cache.shrink();
    };
    let conflict = |_| {
        STAGE.store(GOES_ON, SeqCst);
        while CHILD.load(SeqCst) == -1 {
            std::thread::yield_now();
        }
        has_failed.fetch_or(fork::finish(CHILD.load(SeqCst)).is_err(), SeqCst);
    };
    let check = |steps, _, ()| {
        _ = STAGE.compare_exchange(WAITS, SKIPS, SeqCst, SeqCst);
        await_stage(IDLE);
        assert!(!has_failed.load(SeqCst), "the child that was forked after {steps} steps failed");
        cache.shrink();
        assert_eq!(cache.stats().objects_outside_slabs, 5, "stopped after {steps}");
    };
    std::thread::scope(|threads| {
        let _over = SetOnDrop(&over);
        threads.spawn(|| drop_on_request(&over, drop_some));
        at_sampled_steps(prepare, op, conflict, check);
    });
}

// A child has its parent's values, whatever other threads did during the fork.
fn children_keep_constructed_values() {
    let cache = ConstructedCache::new(Value::new);
    let over = AtomicBool::new(false);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        while !over.load(SeqCst) {
            let values: Vec<_> = (0..random.below(300)).map(|_| cache.alloc()).collect();
            values.iter().for_each(|value| value.check());
            drop(values);
            if random.below(4) == 0 {
                cache.shrink();
            }
        }
    };
    let mine: Vec<_> = (0..100).map(|_| cache.alloc()).collect();
    together_while(3, work, || {
        let _over = SetOnDrop(&over);
        for _ in 0..scale::rounds(40) {
            let child = || {
                let use_it = |_| {
                    let values: Vec<_> = (0..200).map(|_| cache.alloc()).collect();
                    values.iter().for_each(|value| value.check());
                };
                mine.iter().for_each(|value| value.check());
                together_while(2, use_it, || _ = cache.shrink());
                cache.shrink();
            };
            fork::run(child).expect("a consistent child");
        }
    });
    drop(mine);
    close(cache);
    assert_eq!(alive(), 0);
}

// The parent allocates, frees and shrinks, so values are constructed and dropped.
fn child_keeps_constructed_values_at_each_step() {
    struct Large(Value, #[expect(dead_code, reason = "it takes space")] [u64; 5_000]);
    let cache = &ConstructedCache::new(|| Large(Value::new(), [5; 5_000]));
    pin::pin(0);
    let mine: Vec<_> = (0..5).map(|_| cache.alloc()).collect();
    let use_some = || {
        let values: Vec<_> = (0..10).map(|_| cache.alloc()).collect();
        values.iter().chain(&mine).for_each(|value| value.0.check());
    };
    let child = || {
        use_some();
        cache.shrink();
        use_some();
    };
    let op = || {
        drop(cache.alloc());
        cache.shrink();
    };
    let check = |()| assert_eq!(cache.stats().objects_outside_slabs, 5);
    fork_at_steps(Steps::Sampled, || (), op, child, check);
}
