//! Tiers: which one a process gets, and the errors if it cannot get one; and `errno`.

use std::panic::catch_unwind;

use thiscpu::{Counter, Counters, Error, Ledger, PerCpu, PerCpuPair, PerCpuStack, Tier};

use crate::common::{
    DEFAULT_ONLY, Scenario, TIERS, TIERS_AND_SANDBOXES, errno, fork, namespace, scenario, seccomp,
    seccomp::Call, to_percpu_mode, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(tiers::unknown_tier_is_rejected, DEFAULT_ONLY),
    scenario!(tiers::unavailable_tier_is_rejected, DEFAULT_ONLY).needs(seccomp::can_filter),
    scenario!(tiers::empty_setting_is_ignored, DEFAULT_ONLY),
    scenario!(tiers::errno_is_preserved, TIERS_AND_SANDBOXES),
    scenario!(tiers::works_without_sysfs, TIERS).needs(namespace::can_hide_sys),
];

fn request(tier: &str) {
    // SAFETY: no other thread of this process runs, so none reads the environment.
    unsafe { std::env::set_var("THISCPU_TIER", tier) };
}

/// Asserts that every entry point reports `error`, whose text has `words`.
///
/// Fallible constructors return it, and the others panic with it. A counter panics when it would
/// take lanes.
fn assert_rejected(error: &Error, words: &[&str]) {
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
    let entry_points: [fn(); 5] = [
        || drop(PerCpu::<u64>::new()),
        || drop(PerCpuPair::<u32>::new()),
        || drop(PerCpuStack::new()),
        || (0..1000).for_each(|_| COUNTER.inc()),
        || COUNTERS.add(0, 1),
    ];
    for entry_point in entry_points {
        let panic = catch_unwind(entry_point).expect_err("the call went on without a tier");
        let message = panic.downcast::<String>().expect("a message");
        assert!(message.contains(&text), "{message:?} does not contain {text:?}");
    }
}

fn unknown_tier_is_rejected() {
    for name in ["rseq", "RSEQ-CID", "atomic "] {
        request(name);
        let error = thiscpu::tier().expect_err("an unknown tier");
        assert_eq!(error, Error::UnknownTier { requested: name.into() });
        assert_rejected(&error, &[name, "rseq-cid", "rseq-cpu", "atomic"]);
    }
    // The errors have not fixed a tier.
    request("atomic");
    assert_eq!(thiscpu::tier(), Ok(Tier::Atomic));
}

fn unavailable_tier_is_rejected() {
    seccomp::deny(Call::Membarrier, libc::ENOSYS).expect("a seccomp filter");
    for tier in [Tier::RseqCid, Tier::RseqCpu] {
        request(tier.name());
        let error = thiscpu::tier().expect_err("sections without a fence");
        let Error::TierUnavailable { requested, best, .. } = error else { panic!("{error:?}") };
        assert_eq!((requested, best), (tier, Tier::Atomic));
        assert_rejected(&error, &[tier.name(), "membarrier", "atomic", "unset"]);
    }
    request("atomic");
}

fn empty_setting_is_ignored() {
    request("");
    assert!(thiscpu::tier().is_ok());
    assert!(!thiscpu::system_info().expect("a tier").forced);
}

fn errno_is_preserved() {
    static COUNTER: Counter = Counter::new();
    static COUNTERS: Counters<2> = Counters::new();
    let unchanged = |what: &str, op: &dyn Fn()| assert!(errno::is_kept(op), "changed by {what}");
    // These include the first use, taking lanes and moving windows.
    for _ in 0..700 {
        unchanged("an add", &|| COUNTER.add(77));
        unchanged("an add to one of several", &|| COUNTERS.add(1, 77));
    }
    // New threads register and get lanes.
    let words = PerCpu::<u64>::new();
    let add = |_| {
        for _ in 0..700 {
            unchanged("another thread's add", &|| COUNTER.add(77));
            unchanged("an op on a word", &|| words.add(1));
        }
        thiscpu::__test_support::leave_lanes();
        unchanged("an add without a lane", &|| COUNTER.add(77));
    };
    together(4, add);
    // These contend for the account's lock, and some sleep; `charge_keeps_errno_when_it_sleeps` has
    // such a sleep interrupted.
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
    together(4, charge);
    fork::run(|| unchanged("an add in a child", &|| COUNTER.add(77)))
        .expect("a child that keeps errno");
    assert_eq!(COUNTER.sum(), 77 * (700 + 4 * 701));
}

// The library finds CPUs and nodes by other means.
fn works_without_sysfs() {
    namespace::hide_sys().expect("a mount namespace");
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    together(4, |_| (0..5000).for_each(|_| COUNTER.inc()));
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
