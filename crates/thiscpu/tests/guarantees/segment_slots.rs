//! Slots and waiters of a segment at rare moments.
//!
//! A process dies, memory is short, another process holds a lock, or a waiter is damaged.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use thiscpu::{Segment, SegmentErrorKind, SharedAcquireError, SharedBudget};

use super::segment_participants::{
    Holder, LIMIT, Orders, budget, close_all, exhausted, has_lock, until,
};
use crate::common::fork::{SignalOutcome, signal_after_call};
use crate::common::segment::{Place, file_of, image_of, shared_words, small, small_segment};
use crate::common::{DEFAULT_ONLY, Scenario, fork, scale, scenario, seccomp, signal, soon};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_slots::joins_leave_identities_of_others_alone, DEFAULT_ONLY)
        .needs(fork::can_trace),
    scenario!(segment_slots::slot_stays_dead_while_memory_is_missing, DEFAULT_ONLY)
        .needs(seccomp::can_filter),
    scenario!(segment_slots::lock_is_taken_again_when_a_child_has_held_it, DEFAULT_ONLY),
    scenario!(segment_slots::wait_of_a_damaged_waiter_ends, DEFAULT_ONLY),
    scenario!(segment_slots::ten_thousand_processes_want_64_slots, DEFAULT_ONLY),
];

/// Acquires units that a dead process held. A budget that has lost them fails the scenario.
#[track_caller]
fn assert_come_back(budget: &SharedBudget, n: u64, what: &str) {
    assert!(soon(|| budget.try_acquire(n).is_ok()), "{what}: {} units are lost", budget.acquired());
    budget.release(n);
}

/// A process that lets a child acquire units and die, whenever it is told to.
static OTHER: OnceLock<Orders> = OnceLock::new();

extern "C" fn let_other_die(_: i32) {
    OTHER.get().expect("set before").tell();
}

// Another process takes the very slot that this one is about to take, and dies with it.
fn joins_leave_identities_of_others_alone() {
    let segment = small().participants(8).anonymous().expect("a segment");
    let own = budget(&segment);
    let hold = || own.try_acquire(60).expect("units are available");
    let other = Holder::start(|| (), || fork::run(hold).expect("a child"));
    assert!(OTHER.set(other.orders).is_ok(), "set once");
    signal::handle(libc::SIGUSR1, let_other_die);
    for call in 1.. {
        let joined = RefCell::new(None);
        let join = || {
            let attached = Segment::from_fd(file_of(&segment).into()).expect("a segment");
            _ = joined.replace(Some(budget(&attached)));
        };
        let check = || {
            let joined = joined.take().expect("a budget");
            assert_come_back(&joined, LIMIT, &format!("a join, interrupted after call {call}"));
        };
        if let SignalOutcome::TooFewCalls = signal_after_call(call, libc::SIGUSR1, join, check) {
            assert!(call > 10, "only {call} system calls in a join");
            break;
        }
    }
    other.kill();
    assert_no_child_is_left();
}

#[track_caller]
fn assert_no_child_is_left() {
    let any = libc::WNOHANG | libc::__WALL;
    // SAFETY: the call accepts a null status.
    let child = unsafe { libc::waitpid(-1, std::ptr::null_mut(), any) };
    let reason = std::io::Error::last_os_error().raw_os_error();
    assert!(child == -1 && reason == Some(libc::ECHILD), "a child is left: {child}");
}

// A process that cannot look at one of the budgets leaves its units to others.
fn slot_stays_dead_while_memory_is_missing() {
    let segment = small_segment();
    let near = segment.budget("near", LIMIT).expect("room");
    // Puts the other budget on a page of its own.
    segment.counters::<1000>("between").expect("room");
    let far = segment.budget("far", LIMIT).expect("room");
    fork::run(|| {
        near.try_acquire(60).expect("units are available");
        far.try_acquire(70).expect("units are available");
    })
    .expect("a child");
    fork::run(|| {
        let attached = Segment::from_fd(file_of(&segment).into()).expect("a segment");
        let near = attached.budget("near", LIMIT).expect("the budget");
        seccomp::deny(seccomp::Call::Allocate, libc::ENOSPC).expect("a filter");
        attached.budget("far", LIMIT).map(drop).expect_err("no memory");
        assert_come_back(&near, LIMIT, "the budget that has memory");
    })
    .expect("units of one budget");
    assert_come_back(&far, LIMIT, "the other budget");
}

/// Starts a child that no handler of forks sees, and returns its number.
fn start_raw_child() -> i32 {
    // SAFETY: without flags it is a fork of this thread; the child only sleeps.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => loop {
            std::thread::park();
        },
        child => child as i32,
    }
}

fn lock_is_taken_again_when_a_child_has_held_it() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let file = File::options().read(true).write(true).open(&place).expect("a file");
    let child = &shared_words()[0];
    let holder = Holder::start(
        || {
            budget(&segment).try_acquire(60).expect("units are available");
            child.store(start_raw_child() as u64, SeqCst);
            close_all();
        },
        // A refusal looks for dead processes, and at times checks the lock of this process.
        || assert_eq!(budget(&segment).try_acquire(LIMIT), exhausted(40)),
    );
    holder.tell();
    assert!(has_lock(&file), "the child has no copy of the lock");
    // SAFETY: the process is a grandchild that still runs.
    assert_eq!(unsafe { libc::kill(child.load(SeqCst) as i32, libc::SIGKILL) }, 0);
    until(|| !has_lock(&file));
    let is_locked = || {
        holder.tell();
        has_lock(&file)
    };
    assert!(soon(is_locked), "no lock");
}

/// Returns where the first waiter is in the image of a segment.
fn first_waiter(image: &[u8]) -> u64 {
    let word = |number: usize| {
        u64::from_le_bytes(image[8 * number..8 * number + 8].try_into().expect("8 bytes"))
    };
    let (entries, participants) = (word(5), word(8));
    4096 + 8 * entries + 64 * participants
}

// No call of another thread finds the waiter any more.
fn wait_of_a_damaged_waiter_ends() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    let waiter = std::thread::spawn({
        let budget = budget.clone();
        move || budget.acquire(1)
    });
    until(|| budget.waiters() == 1);
    /// The word that names the budget.
    const BUDGET_AT: u64 = 8;
    let at = first_waiter(&image_of(&segment)) + BUDGET_AT;
    file_of(&segment).write_all_at(&u64::MAX.to_le_bytes(), at).expect("a word");
    assert_eq!(budget.waiters(), 0, "another word is damaged");
    budget.close();
    assert!(soon(|| waiter.is_finished()), "the wait does not end");
    assert_eq!(waiter.join().expect("no panic"), Err(SharedAcquireError::Closed));
}

// Those that have slots go on, and those that get none leave nothing behind.
fn ten_thousand_processes_want_64_slots() {
    let segment = small().participants(64).anonymous().expect("a segment");
    let budget = budget(&segment);
    let hold = || budget.try_acquire(1).expect("a slot");
    hold();
    let holders: Vec<_> = (1..64).map(|_| Holder::start(hold, || ())).collect();
    for number in 0..scale::rounds(10_000) {
        fork::run(|| {
            let error = budget.try_acquire(1).expect_err("no slot");
            assert!(error.to_string().contains("64 processes use them already"), "{error}");
            let error = segment.budget("another", LIMIT).expect_err("no slot");
            assert_eq!(error.kind(), &SegmentErrorKind::TooManyParticipants { participants: 64 });
        })
        .unwrap_or_else(|error| panic!("process {number}: {error}"));
        assert_eq!(budget.acquired(), 64);
    }
    holders.into_iter().for_each(Holder::kill);
    assert_come_back(&budget, LIMIT - 1, "64 processes");
    budget.release(1);
    fork::run(|| budget.try_acquire(LIMIT).expect("a slot")).expect("a slot");
    assert_come_back(&budget, LIMIT, "a process with a slot that was used before");
}
