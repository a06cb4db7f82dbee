//! Does this kernel abort sections when it must? Three ways to find out.
//!
//! Each test has a thread linger in a section while something happens to it, many times over. First
//! it lingers undisturbed for a moment, which must now and then get through: else nothing would be
//! learned from an abort.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::probe;

/// How a self-test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(&'static str),
}

const ROUNDS: usize = 20;
/// Some tens of milliseconds: many times what a disturbance takes to arrive.
const LONG_TURNS: u64 = 50_000_000;
/// Some microseconds.
const SHORT_TURNS: u64 = 5_000;

/// Runs all self-tests: what should abort a section, and whether it did.
pub(crate) fn run_all() -> Vec<(&'static str, Outcome)> {
    match probe::linger(1, &AtomicU64::new(0)) {
        Ok(Some(_)) => {}
        _ => {
            let skipped = Outcome::Skipped("this tier has no sections");
            return ["a signal", "preemption", "a fence"].map(|by| (by, skipped.clone())).to_vec();
        }
    }
    if !gets_through() {
        let failed = Outcome::Failed("a short section never gets through undisturbed".to_owned());
        return ["a signal", "preemption", "a fence"].map(|by| (by, failed.clone())).to_vec();
    }
    let (one, other) = two_cpus();
    // On a thread of its own, because the tests pin the thread they run on.
    let tests = move || {
        vec![
            ("a signal", by_signal(one, other)),
            ("preemption", by_preemption(one)),
            ("a fence", by_fence(one, other)),
        ]
    };
    std::thread::spawn(tests).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn gets_through() -> bool {
    (0..1000).any(|_| matches!(probe::linger(SHORT_TURNS, &AtomicU64::new(0)), Ok(Some(false))))
}

/// What came of the rounds of a self-test.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    aborted: usize,
    /// The section was over before it could be disturbed, and nothing can be learned: the disturber
    /// got no CPU for so long, as it happens on machines that are emulated.
    late: usize,
}

/// Lingers `ROUNDS` times on one thread while `disturb` is called once for each round on another,
/// after the section has begun.
fn rounds(victim_cpu: usize, other_cpu: usize, disturb: impl Fn(libc::pthread_t) + Sync) -> Rounds {
    let (left, last) = (AtomicU64::new(0), AtomicU64::new(0));
    let (start, end) = (Barrier::new(2), Barrier::new(2));
    let (mut rounds, aborted) = (Rounds::default(), AtomicBool::new(false));
    let victim = AtomicU64::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            probe::run_on(victim_cpu);
            // SAFETY: returns the calling thread's own handle.
            victim.store(unsafe { libc::pthread_self() }, SeqCst);
            for _ in 0..ROUNDS {
                left.store(u64::MAX, SeqCst);
                start.wait();
                aborted.store(matches!(probe::linger(LONG_TURNS, &left), Ok(Some(true))), SeqCst);
                last.store(left.swap(0, SeqCst), SeqCst);
                end.wait();
            }
        });
        probe::run_on(other_cpu);
        for _ in 0..ROUNDS {
            start.wait();
            // Until the section has begun.
            while left.load(SeqCst) == u64::MAX {
                std::thread::yield_now();
            }
            disturb(victim.load(SeqCst));
            end.wait();
            // The last that a section stores is 1; one that was aborted has not come so far.
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
        0 => Outcome::Skipped("this machine is too slow: no section could be disturbed in time"),
        _ if aborted == disturbed => Outcome::Passed,
        _ => Outcome::Failed(format!("only {aborted} of {disturbed} sections were aborted")),
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_signal(_: i32) {
    SIGNALS.fetch_add(1, SeqCst);
}

fn by_signal(one: usize, other: usize) -> Outcome {
    // SAFETY: a zeroed sigaction is valid; the handler only changes an atomic; the old action is put
    // back below.
    let old = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut old = std::mem::zeroed();
        libc::sigaction(libc::SIGUSR1, &action, &mut old);
        old
    };
    SIGNALS.store(0, SeqCst);
    let rounds = rounds(one, other, |victim| {
        // SAFETY: the victim waits for this round's end, so it is alive.
        unsafe { libc::pthread_kill(victim, libc::SIGUSR1) };
    });
    // SAFETY: the action is the one that was there before.
    unsafe { libc::sigaction(libc::SIGUSR1, &old, std::ptr::null_mut()) };
    match SIGNALS.load(SeqCst) {
        ROUNDS => judge(rounds),
        arrived => Outcome::Failed(format!("only {arrived} of {ROUNDS} signals arrived")),
    }
}

/// Both threads on one CPU: the other can only disturb by being scheduled, which it is when it
/// wakes up or when the victim's time slice ends.
fn by_preemption(cpu: usize) -> Outcome {
    judge(rounds(cpu, cpu, |_| {}))
}

fn by_fence(one: usize, other: usize) -> Outcome {
    if one == other {
        return Outcome::Skipped("it takes two CPUs");
    }
    let panicked = AtomicBool::new(false);
    let rounds = rounds(one, other, |_| {
        panicked.fetch_or(std::panic::catch_unwind(probe::fence).is_err(), SeqCst);
    });
    match panicked.into_inner() {
        true => Outcome::Failed("the fence cannot be had any more".to_owned()),
        false => judge(rounds),
    }
}

/// The first two CPUs that this process may use, or twice the only one.
fn two_cpus() -> (usize, usize) {
    let allowed = thiscpu::report().map(|report| report.cpus_allowed);
    let cpus: Vec<usize> = allowed.map(|set| set.iter().take(2).collect()).unwrap_or_default();
    (cpus.first().copied().unwrap_or(0), cpus.last().copied().unwrap_or(0))
}
