//! Slab caches: the direct path is enabled for registered threads only, and only while they are.
//! It serves nearly all calls of a program that allocates and frees in turn.

use std::cell::Cell;
use std::thread;

use thiscpu::__internal::{CELL_BYTES, Class, Group};
use thiscpu::{__internal, __test_support, Tier};

use crate::common::{
    Object, Scenario, TIERS, WITH_SECTIONS, alloc_many, cache_of, free_all, pin, scenario,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::direct_path_requires_registration, TIERS),
    scenario!(slab::lane_serves_most_calls_in_turn, WITH_SECTIONS),
];

fn direct_path_requires_registration() {
    let can_enable = __internal::HAS_DIRECT && thiscpu::tier().expect("a tier") != Tier::Atomic;
    let cache = &cache_of(64);
    // The threads run one after the other, so they reuse the memory of thread-local variables.
    for round in 0..3 {
        let work = || {
            assert!(!__test_support::is_direct_enabled(), "before its first call");
            let mut objects = alloc_many(cache, round << 32, 100);
            assert_eq!(__test_support::is_direct_enabled(), can_enable, "after its first call");
            __test_support::leave_lanes();
            assert!(!__test_support::is_direct_enabled(), "without a lane");
            objects.extend(alloc_many(cache, round << 32 | 1 << 16, 100));
            objects.drain(..50).for_each(|object| object.free(cache));
            assert!(!__test_support::is_direct_enabled(), "after more calls");
            objects
        };
        let mut objects = thread::scope(|threads| threads.spawn(work).join().expect("no panic"));
        assert!(objects.iter_mut().all(Object::is_intact));
        free_all(cache, objects);
    }
    assert_eq!(__test_support::is_direct_enabled(), can_enable, "on a thread that has only freed");
}

// However many objects are in use, a lane serves most calls that allocate a few and free them.
//
// A lane whose swapped sheaf stayed full or empty would serve half of them for some numbers.
fn lane_serves_most_calls_in_turn() {
    const OBJECTS: usize = 300;
    const ROUNDS: usize = 20;
    static GROUP: Group = Group::new(1 + 1);
    static CLASS: Class = Class::new(64, 8, 1);
    pin::pin(0);
    let (class, misses) = (GROUP.handle(&CLASS, CELL_BYTES), Cell::new(0));
    let miss = || misses.set(misses.get() + 1);
    let alloc = || {
        let slow = || {
            miss();
            class.alloc_slow()
        };
        class.alloc_or(slow).expect("memory")
    };
    let free = |object| {
        // SAFETY: the callers pass objects of this class, and do not use them afterwards.
        unsafe {
            class.free_or(object, || {
                miss();
                class.free_slow(object);
            })
        };
    };
    let mut kept = Vec::with_capacity(OBJECTS);
    for number in 0..2 * OBJECTS {
        misses.set(0);
        for _ in 0..ROUNDS {
            let few = [(); 3].map(|()| alloc());
            few.into_iter().for_each(free);
        }
        // A preempted thread may miss, too.
        let misses = misses.get();
        assert!(misses < ROUNDS / 2, "{misses} misses with {} objects in use", kept.len());
        if number < OBJECTS { kept.push(alloc()) } else { kept.pop().into_iter().for_each(free) }
    }
}
