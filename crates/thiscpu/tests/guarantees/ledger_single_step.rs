//! `Ledger`, stopped at each step while others charge, or while the process is forked.

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering::SeqCst};

use thiscpu::{Account, Ledger};

use super::ledger::{cache_in_lane, open};
use crate::common::single_step::{at_sampled_steps, can_single_step};
use crate::common::{CID_AND_ATOMIC, Scenario, TIERS, fork, pin, scenario, signal};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(ledger::child_is_exact_when_forked_during_sync, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(ledger::child_is_exact_when_forked_during_transfer, TIERS).needs(can_single_step),
    scenario!(ledger::child_is_exact_when_forked_during_snapshot, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(ledger::child_is_exact_when_forked_during_for_each, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(ledger::snapshot_is_one_instant_at_each_step, CID_AND_ATOMIC).needs(can_single_step),
    scenario!(ledger::charge_keeps_errno_when_it_sleeps, TIERS).needs(can_single_step),
    scenario!(ledger::for_each_is_one_instant_at_each_step, CID_AND_ATOMIC).needs(can_single_step),
];

/// In a child: both accounts come to this, and go on.
fn assert_right_in_child(ledger: &Ledger<2>, accounts: [&Account<2>; 2], units: [i64; 2]) {
    let sums = accounts.map(|account| account.sum(0));
    assert_eq!(sums.iter().sum::<i64>(), units.iter().sum::<i64>(), "{sums:?}, not {units:?}");
    let mut all = 0;
    ledger.for_each(|_, counters| all += counters[0]);
    assert_eq!(all, units.iter().sum::<i64>());
    accounts[0].transfer_to(accounts[1], 0, sums[0]);
    (0..300).for_each(|_| accounts[0].charge(0, 1));
    assert_eq!(accounts.map(|account| account.snapshot()[0]), [300, all]);
}

/// What takes accounts out of lanes, and needs no section for that: those never end when steps are counted.
fn child_is_exact_when_forked_during_sync() {
    // So many that most steps are those of transfers, and few are looks at other ways.
    const COUNTERS: usize = 64;
    pin::pin(0);
    let ledger = &Ledger::<COUNTERS>::new_signed();
    let account = &ledger.open();
    let fill = || {
        let before = account.snapshot();
        before.iter().enumerate().for_each(|(index, &n)| account.charge_uncached(index, -n));
        // The first charge finds no way, and takes one.
        account.charge(0, 0);
        (0..COUNTERS).for_each(|index| account.charge(index, 1));
    };
    let wrong = AtomicI64::new(0);
    let conflict = |_| {
        let child = fork::run(|| {
            assert_eq!(account.snapshot(), [1; COUNTERS]);
            (0..300).for_each(|_| account.charge(0, 1));
            assert_eq!(account.sum(0), 301);
        });
        wrong.fetch_add(i64::from(child.is_err()), SeqCst);
    };
    // Not by who forks: this thread would wait for that one's answer, for a minute.
    let check = |steps, _, ()| {
        assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
        assert_eq!(account.read(0), 1, "stopped after {steps}");
    };
    at_sampled_steps(fill, || ledger.sync(), conflict, check);
}

fn child_is_exact_when_forked_during_transfer() {
    pin::pin(0);
    let ledger = &Ledger::<2>::new();
    let [from, to] = &[0; 2].map(|_| ledger.open());
    from.charge(0, 1_000_000);
    [from, to].into_iter().for_each(cache_in_lane);
    let wrong = AtomicI64::new(0);
    let conflict = |_| {
        let child = fork::run(|| assert_right_in_child(ledger, [from, to], [1_000_000, 0]));
        wrong.fetch_add(i64::from(child.is_err()), SeqCst);
    };
    let check = |steps, _, ()| assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
    at_sampled_steps(|| (), || from.transfer_to(to, 0, 5), conflict, check);
    assert_eq!(from.sum(0) + to.sum(0), 1_000_000);
}

/// Forks at each step of an exact answer about two accounts, which both are in a lane.
fn fork_amid(answer: impl Fn(&Ledger<2>, &Account<2>) -> i64) {
    pin::pin(0);
    let ledger = &Ledger::<2>::new();
    let [one, other] = &[0; 2].map(|_| ledger.open());
    [one, other].into_iter().for_each(cache_in_lane);
    one.charge(0, 7);
    let wrong = AtomicI64::new(0);
    let conflict = |_| {
        let child = fork::run(|| assert_right_in_child(ledger, [one, other], [7, 0]));
        wrong.fetch_add(i64::from(child.is_err()), SeqCst);
    };
    let check = |steps, _, units| {
        assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
        assert_eq!(units, 7, "stopped after {steps}");
    };
    at_sampled_steps(|| (), || answer(ledger, one), conflict, check);
}

fn child_is_exact_when_forked_during_snapshot() {
    fork_amid(|_, account| account.snapshot()[0]);
}

fn child_is_exact_when_forked_during_for_each() {
    fork_amid(|ledger, _| {
        let mut all = 0;
        ledger.for_each(|_, [first, _]| all += first);
        all
    });
}

/// At each step of a snapshot another thread charges one counter and then the next, in a lane or not.
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

/// A charge that sleeps on the lock of an account which somebody looks at, and whose sleep is interrupted.
fn charge_keeps_errno_when_it_sleeps() {
    const ERRNO: i32 = 4095;
    thread_local! {
        static TIMER: signal::Timer = signal::Timer::new(libc::SIGUSR1);
    }
    signal::interrupt_calls(libc::SIGUSR1);
    let ledger = &Ledger::<2>::new();
    let account = &ledger.open();
    // SAFETY: the calling thread's errno; the pointer is not kept.
    let errno = || unsafe { libc::__errno_location() };
    let found = AtomicI32::new(ERRNO);
    let conflict = |_| {
        // After it has looked at the lock for a while, and before who has it goes on.
        TIMER.with(|timer| timer.fire_in(50_000));
        // SAFETY: as above.
        unsafe { errno().write(ERRNO) };
        account.charge_uncached(0, 1);
        // SAFETY: as above.
        found.store(unsafe { errno().read() }, SeqCst);
    };
    // Not by who charges, for whose answer this thread would wait.
    let check = |steps, _, _| {
        assert_eq!(found.load(SeqCst), ERRNO, "stopped after {steps}");
    };
    at_sampled_steps(|| (), || account.snapshot(), conflict, check);
}

/// Charges amid a report on two accounts, and a unit that moves between two more.
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
    // Simple, because each of its instructions is a step.
    let report = || {
        let mut found = [0; 4];
        ledger.for_each(|id, [units]| {
            let mut place = 0;
            while ids[place] != id {
                place += 1;
            }
            found[place] = units;
        });
        found
    };
    let check = |steps, _, [last, first, from, to]: [i64; 4]| {
        assert!((0..=1).contains(&(first - last)), "stopped after {steps}: {first}, {last}");
        assert_eq!(from + to, 1_000_000, "stopped after {steps}");
    };
    at_sampled_steps(|| (), report, conflict, check);
}
