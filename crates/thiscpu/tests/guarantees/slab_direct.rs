//! Slab caches: the direct path is enabled for registered threads only, and only while they are.

use std::thread;

use thiscpu::{__internal, __test_support, Tier};

use crate::common::{Object, Scenario, TIERS, alloc_many, cache_of, free_all, scenario};

pub(crate) const SCENARIOS: &[Scenario] =
    &[scenario!(slab::direct_path_requires_registration, TIERS)];

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
