//! Each fallback that no call reports is listed, with its time and its reason.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use thiscpu::DegradationKind as Kind;
use thiscpu::{__test_support, Budget, Counter, Degradation, Ledger, PerCpu, Registrar, Tier};

use crate::common::seccomp::{self, Call};
use crate::common::{
    ATOMIC_ONLY, DEFAULT_ONLY, SELF_REGISTERED_ONLY, Scenario, TIERS, TIERS_AND_SANDBOXES,
    WITH_SECTIONS, alloc_many, cache_of, fork, free_all, resources, scenario, to_percpu_mode,
    together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(degradations::healthy_process_has_none, TIERS_AND_SANDBOXES),
    scenario!(degradations::atomic_tier_is_listed, ATOMIC_ONLY),
    scenario!(degradations::lane_without_memory_is_listed, TIERS),
    scenario!(degradations::items_without_memory_are_listed, TIERS),
    scenario!(degradations::sheaves_without_memory_are_listed, TIERS),
    scenario!(degradations::late_denial_of_membarrier_is_listed, WITH_SECTIONS)
        .needs(seccomp::can_filter),
    scenario!(degradations::late_denial_of_rseq_is_listed, SELF_REGISTERED_ONLY)
        .needs(seccomp::can_filter),
    scenario!(degradations::missing_key_is_listed, SELF_REGISTERED_ONLY),
    scenario!(degradations::thread_without_exit_hook_is_listed, SELF_REGISTERED_ONLY),
    scenario!(degradations::undetected_clones_are_listed, TIERS).needs(seccomp::can_filter),
    scenario!(degradations::child_inherits_those_of_its_parent, DEFAULT_ONLY)
        .needs(seccomp::can_filter),
];

/// Returns the note on one kind.
fn noted(kind: Kind) -> Option<Degradation> {
    thiscpu::degradations().find(|degradation| degradation.kind == kind)
}

/// Asserts that `work` causes the first degradation of this kind, and returns the note.
#[track_caller]
fn assert_causes(kind: Kind, errno: Option<i32>, work: impl FnOnce()) -> Degradation {
    assert_eq!(noted(kind), None);
    let before = SystemTime::now();
    work();
    let degradation = noted(kind).unwrap_or_else(|| panic!("{kind} is not listed"));
    let (since, after) = (degradation.since, SystemTime::now());
    assert!(before <= since && since <= after, "{before:?} <= {since:?} <= {after:?}");
    assert!(degradation.occurrences >= 1, "{degradation:?}");
    assert_eq!(degradation.errno, errno, "{degradation:?}");
    let text = degradation.to_string();
    assert!(text.starts_with(kind.reason()), "{text}");
    assert_eq!(text.contains("error"), errno.is_some(), "{text}");
    let info = thiscpu::system_info().expect("a tier");
    assert!(info.degradations.contains(&degradation), "{info:?}");
    degradation
}

fn use_everything() {
    let (counter, budget, ledger) = (Counter::new(), Budget::new(1 << 20), Ledger::<1>::new());
    let (words, cache, account) = (PerCpu::<u64>::new(), cache_of(64), ledger.open());
    for round in 0..2000 {
        counter.inc();
        words.add(1);
        account.charge(0, 1);
        budget.try_acquire(1).expect("units");
        budget.release(1);
        free_all(&cache, alloc_many(&cache, round, 1));
    }
    assert_eq!((counter.sum(), account.sum(0)), (2000, 2000));
}

fn healthy_process_has_none() {
    use_everything();
    let is_atomic = thiscpu::tier() == Ok(Tier::Atomic);
    let kinds: Vec<_> = thiscpu::degradations().map(|degradation| degradation.kind).collect();
    // A sandbox that denies rseq is also met by the attempt at start-up.
    let kinds = kinds.into_iter().filter(|&kind| !(is_atomic && kind == Kind::Registration));
    assert_eq!(kinds.collect::<Vec<_>>(), [Kind::AtomicTier][..usize::from(is_atomic)]);
    assert_eq!(thiscpu::shared_lane_calls(), 0);
}

fn atomic_tier_is_listed() {
    let degradation = assert_causes(Kind::AtomicTier, None, || _ = thiscpu::tier());
    use_everything();
    assert_eq!(noted(Kind::AtomicTier), Some(degradation));
    assert_eq!(degradation.occurrences, 1);
}

// The list keeps it once there is memory; the number of calls in the shared lane stays as it is.
fn lane_without_memory_is_listed() {
    const CALLS: u64 = 100;
    let words = PerCpu::<u64>::new();
    // The limit ends before anything is asserted: a panic needs memory.
    assert_causes(Kind::Lanes, Some(libc::ENOMEM), || {
        let _limit = resources::limit_data(0);
        (0..CALLS).for_each(|_| words.add(1));
    });
    assert_eq!(thiscpu::shared_lane_calls(), CALLS);
    assert_eq!(words.lanes().next(), Some(CALLS));
    (0..CALLS).for_each(|_| words.add(1));
    assert_eq!(thiscpu::shared_lane_calls(), CALLS);
    assert_eq!(words.lanes().sum::<u64>(), 2 * CALLS);
    let degradation = noted(Kind::Lanes).expect("it stays listed");
    assert_eq!(degradation.occurrences, CALLS);
}

fn items_without_memory_are_listed() {
    static COUNTER: Counter = Counter::new();
    static BUDGET: Budget = Budget::new(1 << 30);
    let tier = thiscpu::tier().expect("a tier");
    let (ledger, cache) = (Ledger::<1>::new(), cache_of(64));
    // No part of the first region is made yet, so no structure finds room there.
    let limited = |work: &dyn Fn()| {
        let _limit = resources::limit_address_space_to(0);
        work();
    };
    let work = || limited(&|| to_percpu_mode(&COUNTER));
    let mut last = assert_causes(Kind::Items, Some(libc::ENOMEM), work).occurrences;
    let mut recurs = |name: &str, work: &dyn Fn()| {
        limited(work);
        let now = noted(Kind::Items).expect("it is listed").occurrences;
        assert!(now > last, "{name}: {now} occurrences");
        last = now;
    };
    // In the atomic tier these two use no lanes.
    if tier != Tier::Atomic {
        recurs("a budget", &|| (0..1000).for_each(|_| BUDGET.try_acquire(1).expect("units")));
        recurs("a ledger", &|| _ = catch_unwind(AssertUnwindSafe(|| ledger.open())));
    }
    recurs("a cache", &|| _ = cache.alloc());
    assert_eq!(COUNTER.sum(), 0);
}

fn sheaves_without_memory_are_listed() {
    const COUNT: u64 = 40 * 1020;
    let (cache, other) = (cache_of(8), cache_of(8));
    let objects = alloc_many(&cache, 0, COUNT);
    let others = alloc_many(&other, 0, COUNT);
    assert_causes(Kind::Sheaves, Some(libc::ENOMEM), || {
        let _limit = resources::limit_data(0);
        free_all(&other, others);
        free_all(&cache, objects);
    });
}

fn late_denial_of_membarrier_is_listed() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    COUNTER.sum();
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a seccomp filter");
    assert_causes(Kind::Membarrier, Some(libc::EPERM), || _ = COUNTER.sum());
    seccomp::deny(Call::SetAffinity, libc::EPERM).expect("a seccomp filter");
    assert_causes(Kind::Fences, Some(libc::EPERM), || {
        catch_unwind(|| COUNTER.sum()).expect_err("no fence is possible");
    });
}

fn late_denial_of_rseq_is_listed() {
    const CALLS: u64 = 1000;
    let words = PerCpu::<u64>::new();
    words.add(1);
    seccomp::deny(Call::Rseq, libc::EPERM).expect("a seccomp filter");
    words.add(1);
    assert_eq!((noted(Kind::Registration), thiscpu::shared_lane_calls()), (None, 0));
    assert_causes(Kind::Registration, Some(libc::EPERM), || {
        together(1, |_| (0..CALLS).for_each(|_| words.add(1)));
    });
    assert_eq!(thiscpu::shared_lane_calls(), CALLS);
}

/// Makes keys of thread-specific data until there are none left, or `count` are made.
fn make_keys(count: usize) {
    // The standard library makes its own key first.
    together(1, |_| ());
    let mut key = 0;
    // SAFETY: `key` is valid for the write.
    let make = || unsafe { libc::pthread_key_create(&raw mut key, None) };
    std::iter::repeat_with(make).take(count).take_while(|&error| error == 0).for_each(drop);
}

// Threads could not end their registrations, so the process has none.
fn missing_key_is_listed() {
    make_keys(usize::MAX);
    assert_causes(Kind::ThreadExit, Some(libc::EAGAIN), || _ = thiscpu::tier());
    let info = thiscpu::system_info().expect("a tier");
    assert_eq!((info.tier, info.registrar), (Tier::Atomic, Registrar::Nobody));
    let (_, why) = info.obstacles[0];
    assert!(why.contains("no key"), "{why}");
    together(3, |_| use_everything());
}

/// Takes all memory that the C library has left for the calling thread.
fn exhaust_malloc() {
    for bytes in (4..20).rev().map(|bits| 1_usize << bits) {
        // SAFETY: the function has no preconditions; the memory is leaked. The compiler would drop
        // calls whose result it knew to be unused.
        while !black_box(unsafe { libc::malloc(bytes) }).is_null() {}
    }
}

// The thread gives its registration up, rather than leave it to outlive the thread's memory.
fn thread_without_exit_hook_is_listed() {
    // The C library has room for 32 keys in each thread, and allocates for more.
    make_keys(100);
    let words = PerCpu::<u64>::new();
    words.add(1);
    let work = |_| {
        let limits = (resources::limit_data(0), resources::limit_address_space_to(0));
        exhaust_malloc();
        (0..10).for_each(|_| words.add(1));
        assert!(!__test_support::is_direct_enabled());
        drop(limits);
        (0..10).for_each(|_| words.add(1));
    };
    assert_causes(Kind::ThreadExit, Some(libc::ENOMEM), || _ = together(1, work));
    assert_eq!(thiscpu::shared_lane_calls(), 20);
    assert_eq!(words.lanes().next(), Some(20));
    assert_eq!(noted(Kind::ThreadExit).expect("a note").occurrences, 1);
}

fn undetected_clones_are_listed() {
    seccomp::deny(Call::Advise, libc::EINVAL).expect("a seccomp filter");
    assert_causes(Kind::ForkDetection, Some(libc::EINVAL), || _ = thiscpu::tier());
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    fork::run(|| assert_eq!(COUNTER.sum(), 0)).expect("a child that counts");
}

fn child_inherits_those_of_its_parent() {
    seccomp::deny(Call::Advise, libc::EINVAL).expect("a seccomp filter");
    let before = assert_causes(Kind::ForkDetection, Some(libc::EINVAL), || _ = thiscpu::tier());
    std::thread::sleep(Duration::from_millis(2));
    fork::run(|| {
        thiscpu::tier().expect("a tier");
        assert_eq!(noted(Kind::ForkDetection), Some(before));
        __test_support::leave_lanes();
        PerCpu::<u64>::new().add(1);
        assert_eq!(thiscpu::shared_lane_calls(), 1);
    })
    .expect("a child with the list of its parent");
    assert_eq!(thiscpu::shared_lane_calls(), 0);
}
