//! `Ledger`: operations are stopped at each step, while others charge or the process is forked.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu::{Account, Ledger};

use super::ledger::{cache_in_lane, open};
use crate::common::{
    CID_AND_ATOMIC, Scenario, Steps, TIERS, at_sampled_steps, can_single_step, errno,
    fork_at_steps, pin, scenario, signal,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(ledger::child_is_exact_when_forked_during_sync, CID_AND_ATOMIC)
        .needs(can_single_step)
        .not_quick(),
    scenario!(ledger::child_is_exact_when_forked_during_transfer, TIERS).needs(can_single_step),
    scenario!(ledger::child_is_exact_when_forked_during_snapshot, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(ledger::child_is_exact_when_forked_during_for_each, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(ledger::child_is_exact_when_forked_during_close, CID_AND_ATOMIC)
        .needs(can_single_step)
        .not_quick(),
    scenario!(ledger::snapshot_is_one_instant_at_each_step, CID_AND_ATOMIC).needs(can_single_step),
    scenario!(ledger::charge_keeps_errno_when_it_sleeps, TIERS).needs(can_single_step),
    scenario!(ledger::for_each_is_one_instant_at_each_step, CID_AND_ATOMIC)
        .needs(can_single_step)
        .slow(),
];

/// Asserts in a child that both accounts together have `units`, and uses them.
fn assert_exact_in_child(ledger: &Ledger<2>, accounts: [&Account<2>; 2], units: i64) {
    let sums = accounts.map(|account| account.sum(0));
    assert_eq!(sums.iter().sum::<i64>(), units, "{sums:?}");
    let mut all = 0;
    ledger.for_each(|_, counters| all += counters[0]);
    assert_eq!(all, units);
    accounts[0].transfer_to(accounts[1], 0, sums[0]);
    (0..300).for_each(|_| accounts[0].charge(0, 1));
    assert_eq!(accounts.map(|account| account.snapshot()[0]), [300, all]);
}

// A sync flushes ways without sections, which would never end while they are single-stepped.
fn child_is_exact_when_forked_during_sync() {
    // So many that most steps flush counters, and few look at other ways.
    const COUNTERS: usize = 64;
    pin::pin(0);
    let ledger = &Ledger::<COUNTERS>::new_signed();
    let account = &ledger.open();
    let fill = || {
        let before = account.snapshot();
        before.iter().enumerate().for_each(|(index, &n)| account.charge_uncached(index, -n));
        // The first charge misses and occupies a way.
        account.charge(0, 0);
        (0..COUNTERS).for_each(|index| account.charge(index, 1));
    };
    let child = || {
        assert_eq!(account.snapshot(), [1; COUNTERS]);
        (0..300).for_each(|_| account.charge(0, 1));
        assert_eq!(account.sum(0), 301);
    };
    let check = |()| assert_eq!(account.read(0), 1);
    fork_at_steps(Steps::Sampled, fill, || ledger.sync(), child, check);
}

fn child_is_exact_when_forked_during_transfer() {
    pin::pin(0);
    let ledger = &Ledger::<2>::new();
    let [from, to] = &[0; 2].map(|_| ledger.open());
    from.charge(0, 1_000_000);
    [from, to].into_iter().for_each(cache_in_lane);
    let child = || assert_exact_in_child(ledger, [from, to], 1_000_000);
    fork_at_steps(Steps::Sampled, || (), || from.transfer_to(to, 0, 5), child, |()| ());
    assert_eq!(from.sum(0) + to.sum(0), 1_000_000);
}

/// Forks at each step of `read`, which reads two accounts that a lane caches.
fn fork_during(read: impl Fn(&Ledger<2>, &Account<2>) -> i64) {
    pin::pin(0);
    let ledger = &Ledger::<2>::new();
    let [one, other] = &[0; 2].map(|_| ledger.open());
    [one, other].into_iter().for_each(cache_in_lane);
    one.charge(0, 7);
    let child = || assert_exact_in_child(ledger, [one, other], 7);
    let check = |units| assert_eq!(units, 7);
    fork_at_steps(Steps::Sampled, || (), || read(ledger, one), child, check);
}

fn child_is_exact_when_forked_during_snapshot() {
    fork_during(|_, account| account.snapshot()[0]);
}

fn child_is_exact_when_forked_during_for_each() {
    fork_during(|ledger, _| {
        let mut all = 0;
        ledger.for_each(|_, [first, _]| all += first);
        all
    });
}

// A close returns the pages of a chunk of records, and an account is opened after it.
fn child_is_exact_when_forked_during_close() {
    // Some chunks, one of which also has the account that stays.
    const COUNT: usize = 5_000;
    let ledger = &Ledger::<64>::new();
    let kept = &ledger.open();
    kept.charge(0, 7);
    let ids = &Mutex::new(BTreeSet::from([kept.id()]));
    let is_new = |account: &Account<64>| ids.lock().expect("no panic").insert(account.id());
    let last = RefCell::new(None);
    let prepare = || {
        let mut accounts = open(ledger, COUNT);
        assert!(accounts.iter().all(is_new));
        // All accounts of the last chunk are closed, but one of the chunk before.
        *last.borrow_mut() = Some(accounts.swap_remove(COUNT / 2));
    };
    let close_and_open = || {
        drop(last.take());
        ledger.open()
    };
    let child = || {
        let accounts = open(ledger, COUNT);
        for account in &accounts {
            assert!(is_new(account), "{} was another account's", account.id());
            assert_eq!(account.sum(0), 0);
            account.charge(0, 1);
        }
        let mut all = 0;
        ledger.for_each(|_, counters| all += counters[0]);
        assert_eq!((all, kept.sum(0)), (COUNT as i64 + 7, 7));
    };
    fork_at_steps(Steps::Sampled, prepare, close_and_open, child, |account| {
        assert!(is_new(&account));
    });
}

// At each step of a snapshot another thread charges both counters in turn, with or without a lane.
fn snapshot_is_one_instant_at_each_step() {
    let ledger = &Ledger::<2>::new();
    let account = &ledger.open();
    let conflict = |stop| {
        pin::pin(stop as usize % 2);
        for index in [0, 1] {
            match stop % 3 {
                0 => account.charge_uncached(index, 1),
                _ => account.charge(index, 1),
            }
        }
    };
    let check = |steps, _, [first, second]: [i64; 2]| {
        assert!((0..=1).contains(&(first - second)), "stopped after {steps}: {first}, {second}");
    };
    at_sampled_steps(|| (), || account.snapshot(), conflict, check);
}

// A signal interrupts a charge while it sleeps on the lock of an account that is being read.
fn charge_keeps_errno_when_it_sleeps() {
    thread_local! {
        static TIMER: signal::Timer = signal::Timer::new(libc::SIGUSR1);
    }
    signal::interrupt_calls(libc::SIGUSR1);
    let ledger = &Ledger::<2>::new();
    let account = &ledger.open();
    let is_kept = AtomicBool::new(true);
    let conflict = |_| {
        // The signal comes after the charge has begun to sleep, and before the owner continues.
        TIMER.with(|timer| timer.fire_in(50_000));
        is_kept.fetch_and(errno::is_kept(|| account.charge_uncached(0, 1)), SeqCst);
    };
    // Checked here, because a panic on the charging thread would leave this one waiting.
    let check = |steps, _, _| assert!(is_kept.load(SeqCst), "stopped after {steps}");
    at_sampled_steps(|| (), || account.snapshot(), conflict, check);
}

// At each step of a listing another thread charges two accounts, and moves a unit between two more.
fn for_each_is_one_instant_at_each_step() {
    let ledger = &Ledger::<1>::new();
    let accounts = &open(ledger, 4);
    accounts[2].charge(0, 1_000_000);
    let conflict = |stop| {
        pin::pin(stop as usize % 2);
        for account in [1, 0] {
            match stop % 3 {
                0 => accounts[account].charge_uncached(0, 1),
                _ => accounts[account].charge(0, 1),
            }
        }
        accounts[2].transfer_to(&accounts[3], 0, 1);
    };
    let ids = [0, 1, 2, 3].map(|account: usize| accounts[account].id());
    // Kept simple, because each of its instructions is a step.
    let list = || {
        let mut found = [0; 4];
        ledger.for_each(|id, [units]| {
            let mut index = 0;
            while ids[index] != id {
                index += 1;
            }
            found[index] = units;
        });
        found
    };
    let check = |steps, _, [last, first, from, to]: [i64; 4]| {
        assert!((0..=1).contains(&(first - last)), "stopped after {steps}: {first}, {last}");
        assert_eq!(from + to, 1_000_000, "stopped after {steps}");
    };
    at_sampled_steps(|| (), list, conflict, check);
}
