//! Tests whether this kernel aborts sections on a signal, on preemption, and on a fence.
//!
//! In each test a thread spins in a section, many times over, while another thread disturbs it.
//! First it spins undisturbed for a moment, and must sometimes finish: an abort proves nothing
//! otherwise.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::__test_support;

/// How a self-test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(&'static str),
}

/// The events that should abort a section.
const NAMES: [&str; 3] = ["a signal", "preemption", "a fence"];

const ROUNDS: usize = 20;
/// Some tens of milliseconds: many times what a disturbance takes to arrive.
const LONG_TURNS: u64 = 50_000_000;
/// Some microseconds.
const SHORT_TURNS: u64 = 5_000;

/// Runs all self-tests; returns what should abort a section, and whether it did.
pub(crate) fn run_all() -> Vec<(&'static str, Outcome)> {
    let all = |outcome: Outcome| NAMES.map(|by| (by, outcome.clone())).to_vec();
    let spin = |turns| __test_support::spin(turns, &AtomicU64::new(0));
    if !matches!(spin(1), Ok(Some(_))) {
        return all(Outcome::Skipped("this tier has no sections"));
    }
    if !(0..1000).any(|_| spin(SHORT_TURNS) == Ok(Some(false))) {
        return all(Outcome::Failed("a short section never gets through undisturbed".to_owned()));
    }
    let (one, other) = two_cpus();
    // On a thread of its own, because the tests pin the thread they run on.
    let tests = move || [by_signal(one, other), by_preemption(one), by_fence(one, other)];
    let tests = std::thread::spawn(tests).join();
    NAMES.into_iter().zip(tests.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

/// The results of the rounds of one self-test.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    aborted: usize,
    /// Rounds whose section ended before the disturbance, which prove nothing.
    ///
    /// The disturbing thread got no CPU for that long, as happens on emulated machines.
    late: usize,
}

/// Spins in `ROUNDS` sections on one thread and calls `disturb` on another in each.
fn rounds(victim_cpu: usize, other_cpu: usize, disturb: impl Fn(libc::pthread_t) + Sync) -> Rounds {
    let (left, last) = (AtomicU64::new(0), AtomicU64::new(0));
    let (start, end) = (Barrier::new(2), Barrier::new(2));
    let (mut rounds, aborted) = (Rounds::default(), AtomicBool::new(false));
    let victim = AtomicU64::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            __test_support::run_on(victim_cpu);
            // SAFETY: returns the calling thread's own handle.
            victim.store(unsafe { libc::pthread_self() }, SeqCst);
            for _ in 0..ROUNDS {
                left.store(u64::MAX, SeqCst);
                start.wait();
                aborted.store(__test_support::spin(LONG_TURNS, &left) == Ok(Some(true)), SeqCst);
                last.store(left.swap(0, SeqCst), SeqCst);
                end.wait();
            }
        });
        __test_support::run_on(other_cpu);
        for _ in 0..ROUNDS {
            start.wait();
            // Wait until the section has begun.
            while left.load(SeqCst) == u64::MAX {
                std::thread::yield_now();
            }
            disturb(victim.load(SeqCst));
            end.wait();
            // A section stores 1 last; an aborted one has not got that far.
            let over = last.load(SeqCst) <= 1;
            match aborted.load(SeqCst) {
                true => rounds.aborted += 1,
                false => rounds.late += usize::from(over),
            }
        }
    });
    rounds
}

fn judge(Rounds { aborted, late }: Rounds) -> Outcome {
    let disturbed = ROUNDS - late;
    match disturbed {
        0 => Outcome::Skipped("this machine is too slow to disturb a section in time"),
        _ if aborted == disturbed => Outcome::Passed,
        _ => Outcome::Failed(format!("only {aborted} of {disturbed} sections were aborted")),
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_signal(_: i32) {
    SIGNALS.fetch_add(1, SeqCst);
}

fn by_signal(one: usize, other: usize) -> Outcome {
    // SAFETY: the handler only changes an atomic, and the old one is restored below.
    let old = unsafe { libc::signal(libc::SIGUSR1, count_signal as *const () as usize) };
    SIGNALS.store(0, SeqCst);
    let rounds = rounds(one, other, |victim| {
        // SAFETY: the victim waits for this round's end, so it is alive.
        unsafe { libc::pthread_kill(victim, libc::SIGUSR1) };
    });
    // SAFETY: the handler is the one that was there before.
    unsafe { libc::signal(libc::SIGUSR1, old) };
    match SIGNALS.load(SeqCst) {
        ROUNDS => judge(rounds),
        arrived => Outcome::Failed(format!("only {arrived} of {ROUNDS} signals arrived")),
    }
}

/// Tests preemption with both threads on one CPU.
///
/// The other thread disturbs just by being scheduled: when it wakes up, or when the victim's time
/// slice ends.
fn by_preemption(cpu: usize) -> Outcome {
    judge(rounds(cpu, cpu, |_| {}))
}

fn by_fence(one: usize, other: usize) -> Outcome {
    if one == other {
        return Outcome::Skipped("it needs two CPUs");
    }
    let panicked = AtomicBool::new(false);
    let rounds = rounds(one, other, |_| {
        panicked.fetch_or(std::panic::catch_unwind(__test_support::fence).is_err(), SeqCst);
    });
    match panicked.into_inner() {
        true => Outcome::Failed("fences are no longer possible".to_owned()),
        false => judge(rounds),
    }
}

/// Returns the first two CPUs that this process may use, or the only one twice.
fn two_cpus() -> (usize, usize) {
    let allowed = thiscpu::system_info().map(|report| report.cpus_allowed);
    let cpus: Vec<usize> = allowed.map(|set| set.iter().take(2).collect()).unwrap_or_default();
    (cpus.first().copied().unwrap_or(0), cpus.last().copied().unwrap_or(0))
}
