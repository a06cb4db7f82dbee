//! What the process runs on, what it says when it cannot, and that it leaves `errno` alone.

use std::panic::catch_unwind;

use thiscpu::{Counter, Counters, Error, Ledger, PerCpu, PerCpuPair, PerCpuStack, Tier};

use crate::common::threads::{to_percpu_mode, together};
use crate::common::{
    DEFAULT_ONLY, Scenario, TIERS, TIERS_AND_SANDBOXES, fork, namespace, scenario, seccomp,
    seccomp::Call,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(tiers::unknown_tier_is_rejected, DEFAULT_ONLY),
    scenario!(tiers::unavailable_tier_is_rejected, DEFAULT_ONLY).needs(seccomp::can_filter),
    scenario!(tiers::empty_setting_is_ignored, DEFAULT_ONLY),
    scenario!(tiers::errno_is_preserved, TIERS_AND_SANDBOXES),
    scenario!(tiers::works_without_sysfs, TIERS).needs(namespace::can_hide_sys),
];

fn ask_for(tier: &str) {
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("THISCPU_TIER", tier) };
}

/// Every way in says the same: constructors that can return an error do, the rest panic with it,
/// an add at the latest when it would take lanes.
fn assert_refused(error: &Error, words: &[&str]) {
    static COUNTER: Counter = Counter::new();
    static COUNTERS: Counters<2> = Counters::new();
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
    assert_eq!(thiscpu::tier().as_ref(), Err(error));
    assert_eq!(thiscpu::system_info().map(drop).as_ref(), Err(error));
    assert_eq!(PerCpu::<u64>::try_new().map(drop).as_ref(), Err(error));
    assert_eq!(PerCpuPair::<u64>::try_new().map(drop).as_ref(), Err(error));
    assert_eq!(PerCpuStack::try_new().map(drop).as_ref(), Err(error));
    let ways_in: [fn(); 5] = [
        || drop(PerCpu::<u64>::new()),
        || drop(PerCpuPair::<u32>::new()),
        || drop(PerCpuStack::new()),
        || (0..1000).for_each(|_| COUNTER.inc()),
        || COUNTERS.add(0, 1),
    ];
    for way_in in ways_in {
        let panic = catch_unwind(way_in).expect_err("went on without a tier");
        let message = panic.downcast::<String>().expect("a message");
        assert!(message.contains(&text), "{message:?} does not say {text:?}");
    }
}

fn unknown_tier_is_rejected() {
    for name in ["rseq", "RSEQ-CID", "atomic "] {
        ask_for(name);
        let error = thiscpu::tier().expect_err("no tier of that name");
        assert_eq!(error, Error::UnknownTier { requested: name.into() });
        assert_refused(&error, &[name, "rseq-cid", "rseq-cpu", "atomic"]);
    }
    // Nothing is decided for good by that.
    ask_for("atomic");
    assert_eq!(thiscpu::tier(), Ok(Tier::Atomic));
}

fn unavailable_tier_is_rejected() {
    seccomp::deny(Call::Membarrier, libc::ENOSYS).expect("a filter");
    for asked in [Tier::RseqCid, Tier::RseqCpu] {
        ask_for(asked.name());
        let error = thiscpu::tier().expect_err("no fence, no sections");
        assert!(
            matches!(error, Error::TierUnavailable { requested: a, best: Tier::Atomic, .. } if a == asked)
        );
        assert_refused(&error, &[asked.name(), "membarrier", "atomic", "unset"]);
    }
    ask_for("atomic");
}

fn empty_setting_is_ignored() {
    ask_for("");
    assert!(thiscpu::tier().is_ok());
    assert!(!thiscpu::system_info().expect("a tier").forced);
}

/// A value that no call of the library would leave behind.
const ERRNO: i32 = 4095;

fn errno() -> &'static mut i32 {
    // SAFETY: this thread's errno, which nobody else uses; the reference is not kept.
    unsafe { &mut *libc::__errno_location() }
}

fn errno_is_preserved() {
    static COUNTER: Counter = Counter::new();
    static COUNTERS: Counters<2> = Counters::new();
    let unchanged = |what: &str, op: &dyn Fn()| {
        *errno() = ERRNO;
        op();
        assert_eq!(*errno(), ERRNO, "after {what}");
    };
    // The first use, taking lanes, and moving windows are among these.
    for _ in 0..700 {
        unchanged("an add", &|| COUNTER.add(77));
        unchanged("an add to one of several", &|| COUNTERS.add(1, 77));
    }
    // A thread of its own: its registration, and its lane.
    let words = PerCpu::<u64>::new();
    let add = |_| {
        for _ in 0..700 {
            unchanged("another thread's add", &|| COUNTER.add(77));
            unchanged("an op on a word", &|| words.add(1));
        }
        thiscpu::__test_support::leave_lanes();
        unchanged("an add without a lane", &|| COUNTER.add(77));
    };
    together(4, add, || {});
    // These meet the account's lock, and some sleep on it; see `ledger::errno_amid_a_snapshot`.
    let ledger = Ledger::<1>::new();
    let account = &ledger.open();
    let charge = |thread| {
        for _ in 0..5000 {
            match thread % 2 {
                0 => _ = account.snapshot(),
                _ => unchanged("a charge", &|| account.charge_uncached(0, 1)),
            }
        }
    };
    together(4, charge, || {});
    fork::run(|| unchanged("an add in a child", &|| COUNTER.add(77))).expect("errno of a child");
    assert_eq!(COUNTER.sum(), 77 * (700 + 4 * 701));
}

/// CPUs and nodes are found otherwise, and all works.
fn works_without_sysfs() {
    namespace::hide_sys().expect("what was tried before");
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    together(4, |_| (0..5000).for_each(|_| COUNTER.inc()), || ());
    assert_eq!(COUNTER.sum(), 20_000);
    let words = PerCpu::<u16>::new();
    words.add(3);
    assert_eq!(words.lanes().sum::<u16>(), 3);
    let report = thiscpu::system_info().expect("a tier");
    assert_eq!(report.cpus_online, None);
    assert_eq!(report.nodes.len(), 1);
    assert!(report.cpus_allowed.iter().all(|cpu| report.cpus_possible.contains(cpu)));
    assert!(report.lanes_max >= report.cpus_allowed.len());
}
