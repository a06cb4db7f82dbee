//! Threads that are let into near sections: those that are known to be registered, and no longer than they are.

use std::thread;

use thiscpu::{__internal, __test_support, Tier};

use crate::common::objects::{Object, alloc_many, cache_of, free_all};
use crate::common::{Scenario, TIERS, scenario};

pub(crate) const SCENARIOS: &[Scenario] =
    &[scenario!(slab::direct_path_requires_registration, TIERS)];

fn direct_path_requires_registration() {
    let may_come = __internal::HAS_DIRECT && thiscpu::tier().expect("a tier") != Tier::Atomic;
    let cache = &cache_of(64);
    // One after the other, so that the memory of one's thread-local variables is the next one's.
    for turn in 0..3 {
        let of_thread = || {
            assert!(!__test_support::is_direct_enabled(), "before its first call");
            let mut objects = alloc_many(cache, turn << 32, 100);
            assert_eq!(__test_support::is_direct_enabled(), may_come, "after it");
            __test_support::leave_lanes();
            assert!(!__test_support::is_direct_enabled(), "once it has no lane");
            objects.extend(alloc_many(cache, turn << 32 | 1 << 16, 100));
            objects.drain(..50).for_each(|object| object.free(cache));
            assert!(!__test_support::is_direct_enabled(), "nor let in again");
            objects
        };
        let mut objects = thread::scope(|threads| threads.spawn(of_thread).join().unwrap());
        assert!(objects.iter_mut().all(Object::is_intact));
        free_all(cache, objects);
    }
    assert_eq!(__test_support::is_direct_enabled(), may_come, "who has only freed");
}
