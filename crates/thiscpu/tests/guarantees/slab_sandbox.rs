//! Slab caches in sandboxes that deny system calls late.

use std::alloc::Layout;
use std::collections::BTreeSet;

use thiscpu::RawCache;

use super::sandbox::deny_fences;
use crate::common::seccomp::{self, Call};
use crate::common::{
    Object, Random, SELF_REGISTERED_ONLY, Scenario, TIERS, WITH_SECTIONS, alloc_many, close, fork,
    free_all, leave_lanes_if, pin, scale, scenario, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::shrink_empties_lanes_when_membarrier_is_denied_late, TIERS)
        .needs(seccomp::can_filter),
    scenario!(slab::lanes_keep_objects_when_fences_are_denied, WITH_SECTIONS)
        .needs(seccomp::can_filter)
        .not_quick(),
    scenario!(slab::objects_are_never_lost_when_rseq_is_denied_late, SELF_REGISTERED_ONLY)
        .needs(seccomp::can_filter),
];

static CACHE: RawCache = RawCache::new(Layout::new::<[u64; 12]>());

/// Allocates and frees on several threads, and returns the objects in use.
///
/// One thread has no lane. The threads change CPUs if `may_move` says so.
fn churn(cache: &RawCache, may_move: bool, meanwhile: impl FnOnce()) -> Vec<Object> {
    let work = |thread: usize| {
        leave_lanes_if(thread == 2);
        let (mut random, mut held) = (Random::new(thread as u64), Vec::new());
        for number in 0..scale::rounds(20_000) {
            if may_move && number % 500 == 0 {
                pin::pin(number as usize / 500);
            }
            match random.below(2 + held.len() as u64 / 100) {
                0 => held.extend(Object::alloc(cache, (thread as u64) << 32 | number)),
                _ if held.is_empty() => {}
                n => held.swap_remove(n as usize * 77 % held.len()).free(cache),
            }
        }
        held
    };
    together_while(3, work, meanwhile).into_iter().flatten().collect()
}

// The fence visits every CPU instead, and a shrink still empties all lanes.
fn shrink_empties_lanes_when_membarrier_is_denied_late() {
    let cache = RawCache::new(Layout::new::<[u64; 12]>());
    let before = churn(&cache, true, || ());
    let after = churn(&cache, true, || {
        seccomp::deny(Call::Membarrier, libc::EPERM).expect("a seccomp filter");
        (0..scale::rounds(50)).for_each(|_| _ = cache.shrink());
    });
    let out = before.len() + after.len();
    cache.shrink();
    assert_eq!(cache.stats().objects_outside_slabs, out);
    free_all(&cache, before);
    free_all(&cache, after);
    close(cache);
}

// A shrink leaves objects in lanes, where they can be used; no call panics, and no object is lost.
fn lanes_keep_objects_when_fences_are_denied() {
    // So large that sheaves hold few objects: losses would soon exceed the lanes' capacity.
    static CACHE: RawCache = RawCache::new(Layout::new::<[u64; 1024]>());
    let most = 1 + 2 * 124;
    pin::pin(0);
    let kept = alloc_many(&CACHE, 0, 500);
    let last = alloc_many(&CACHE, 500, 10);
    let addresses: BTreeSet<usize> = last.iter().map(Object::address).collect();
    free_all(&CACHE, last);
    deny_fences();
    CACHE.shrink();
    let lanes = CACHE.stats().objects_outside_slabs - 500;
    assert!(lanes >= 10, "{lanes} objects in lanes");
    let again = alloc_many(&CACHE, 0, 10);
    assert_eq!(again.iter().map(Object::address).collect::<BTreeSet<_>>(), addresses);
    free_all(&CACHE, again);
    assert_eq!(CACHE.stats().objects_outside_slabs, 500 + lanes);
    let left = churn(&CACHE, false, || (0..scale::rounds(50)).for_each(|_| _ = CACHE.shrink()));
    free_all(&CACHE, left);
    free_all(&CACHE, kept);
    CACHE.shrink();
    // Each lane has a hot object and two sheaves.
    let (before, cpus) = (CACHE.stats(), pin::cpus().len());
    assert!(before.objects_outside_slabs <= most * cpus, "{before:?}");
    for _ in 0..200 {
        free_all(&CACHE, alloc_many(&CACHE, 0, 100));
        CACHE.shrink();
    }
    // Only this thread's lane can hold more.
    let stats = CACHE.stats();
    assert!(
        stats.objects_outside_slabs <= before.objects_outside_slabs + most,
        "{before:?}, {stats:?}"
    );
    let mut all = alloc_many(&CACHE, 0, stats.objects_outside_slabs as u64);
    all.iter_mut().for_each(|object| assert!(object.is_intact()));
    free_all(&CACHE, all);
}

// New threads get no lane, and lose nothing; threads with a lane keep it, in a child too.
fn objects_are_never_lost_when_rseq_is_denied_late() {
    let left =
        churn(&CACHE, true, || seccomp::deny(Call::Rseq, libc::EPERM).expect("a seccomp filter"));
    free_all(&CACHE, left);
    let left = churn(&CACHE, true, || free_all(&CACHE, alloc_many(&CACHE, 1 << 40, 5_000)));
    let out = left.len();
    CACHE.shrink();
    assert_eq!(CACHE.stats().objects_outside_slabs, out);
    fork::run(|| {
        free_all(&CACHE, churn(&CACHE, true, || ()));
        CACHE.shrink();
        assert_eq!(CACHE.stats().objects_outside_slabs, out);
    })
    .expect("a consistent child");
    free_all(&CACHE, left);
}
