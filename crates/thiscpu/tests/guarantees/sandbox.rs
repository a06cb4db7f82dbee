//! Sandboxes that deny system calls late, after the library has used them.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use thiscpu::{__test_support, Counter, Counters, Ledger, Tier};

use crate::common::seccomp::{self, Call};
use crate::common::{
    ATOMIC_ONLY, MIXED, SELF_REGISTERED_ONLY, Scenario, SetOnDrop, TIERS, Tally, WITH_SECTIONS,
    errno, fork, pass, pin, scale, scenario, to_percpu_mode, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(sandbox::sums_stay_exact_when_membarrier_is_denied_late, TIERS)
        .needs(seccomp::can_filter),
    scenario!(sandbox::fence_works_when_caller_is_moved, WITH_SECTIONS).needs(seccomp::can_filter),
    scenario!(sandbox::fence_reaches_every_cpu, WITH_SECTIONS)
        .needs(|| seccomp::can_filter().and_then(|()| pin::two_cpus())),
    scenario!(sandbox::sums_panic_when_fences_are_denied, WITH_SECTIONS).needs(seccomp::can_filter),
    scenario!(sandbox::accounts_stay_intact_when_fences_are_denied, WITH_SECTIONS)
        .needs(seccomp::can_filter),
    scenario!(sandbox::atomic_tier_needs_no_fence, ATOMIC_ONLY).needs(seccomp::can_filter),
    scenario!(sandbox::adds_stay_exact_when_rseq_is_denied_late, SELF_REGISTERED_ONLY)
        .needs(seccomp::can_filter),
];

// The fence visits every CPU instead, and sums stay exact, even while threads move.
fn sums_stay_exact_when_membarrier_is_denied_late() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    COUNTER.sum();
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a seccomp filter");
    pass(
        &MIXED,
        |_, sign| COUNTER.add(sign),
        |token| {
            let mut asked = 0;
            while token.keep_asking(&mut asked, 800, 500) {
                let sum = COUNTER.sum();
                assert!(sum == 0 || sum == 1, "{sum}");
            }
        },
    );
    let counters = Counters::<2>::new();
    let tally = Tally::new(3);
    let add = |thread: usize| {
        for round in 0..scale::rounds(3000) {
            pin::pin(thread + round as usize);
            tally.add(thread, 1, || counters.add(1, 1));
        }
    };
    together_while(3, add, || {
        for _ in 0..scale::rounds(200) {
            let (done, [_, sum], begun) = tally.around(|| counters.snapshot());
            assert!(done <= sum && sum <= begun, "{done} <= {sum} <= {begun}");
        }
    });
    // The fence restores this thread's affinity. Before Linux 6.2 setting an affinity drops CPUs
    // that are offline at that moment, so this is tried until none was.
    let restores_affinity = || {
        pin::set_affinity(0, pin::cpus());
        let before = pin::allowed();
        counters.snapshot();
        pin::allowed() == before
    };
    assert!((0..100).any(|_| restores_affinity()));
}

// Another thread moves the caller while it visits every CPU, and threads come and go meanwhile.
fn fence_works_when_caller_is_moved() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    COUNTER.sum();
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a seccomp filter");
    let (over, tid) = (AtomicBool::new(false), AtomicI32::new(0));
    let disturb = || {
        while tid.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        for round in 0.. {
            if over.load(SeqCst) {
                return;
            }
            pin::set_affinity(tid.load(SeqCst), &[pin::cpus()[round % pin::cpus().len()]]);
            if round % 8 == 0 {
                together(1, |_| COUNTER.add(0));
            }
            std::thread::sleep(STAY * (scale::factor() - 1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(disturb);
        pass(
            &MIXED,
            |_, sign| COUNTER.add(sign),
            |token| {
                let _over = SetOnDrop(&over);
                tid.store(pin::tid(), SeqCst);
                let mut asked = 0;
                while token.keep_asking(&mut asked, 400, 200) {
                    let sum = COUNTER.sum();
                    assert!(sum == 0 || sum == 1, "{sum}");
                }
            },
        );
    });
}

/// The time for which a moved thread stays on its CPU, times the slowdown minus 1.
///
/// On a usual machine it may be moved on at once. On a slow one it would never get its turn.
const STAY: Duration = Duration::from_millis(2);

/// A thread that stays in sections on one CPU, as other threads see it.
#[derive(Default)]
struct Lingerer {
    /// The number of sections that it has begun, or is about to begin.
    begun: AtomicU64,
    /// Changes while it is in a section.
    turns_left: AtomicU64,
}

impl Lingerer {
    fn linger(&self, over: &AtomicBool) {
        // Long for a section, but it ends if no fence reaches it.
        const TURNS: u64 = 1 << 28;
        while !over.load(SeqCst) {
            self.begun.fetch_add(1, SeqCst);
            __test_support::spin(TURNS, &self.turns_left).expect("a tier");
        }
    }

    /// Waits until the thread is in a section, and returns the section's number.
    ///
    /// Must run on another CPU, because preempting the thread would abort its section.
    fn section(&self) -> u64 {
        loop {
            let (begun, turns) = (self.begun.load(SeqCst), self.turns_left.load(SeqCst));
            std::hint::spin_loop();
            let has_moved = self.turns_left.load(SeqCst) != turns;
            if has_moved && self.begun.load(SeqCst) == begun {
                return begun;
            }
        }
    }

    /// Waits until that section has ended, and panics if it makes progress.
    fn assert_ended(&self, section: u64) {
        let turns = self.turns_left.load(SeqCst);
        while self.begun.load(SeqCst) == section {
            if self.turns_left.load(SeqCst) != turns {
                assert_ne!(self.begun.load(SeqCst), section, "the fence has missed this section");
            }
            std::thread::yield_now();
        }
    }
}

// A section on each CPU has ended after a fence, even if the caller is moved during the fence.
fn fence_reaches_every_cpu() {
    thiscpu::tier().expect("a tier");
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a seccomp filter");
    let cpus = pin::cpus();
    let lingerers: Vec<_> = cpus.iter().map(|_| Lingerer::default()).collect();
    let (over, caller) = (AtomicBool::new(false), pin::tid());
    std::thread::scope(|threads| {
        for (number, lingerer) in lingerers.iter().enumerate() {
            let over = &over;
            threads.spawn(move || {
                pin::pin(number);
                lingerer.linger(over);
            });
        }
        let _over = SetOnDrop(&over);
        let fences = || {
            for round in 0..scale::rounds(30) as usize {
                let lingerer = &lingerers[round % cpus.len()];
                pin::pin(round + 1);
                let section = lingerer.section();
                __test_support::fence();
                lingerer.assert_ended(section);
            }
        };
        fences();
        threads.spawn(|| {
            for round in 0.. {
                if over.load(SeqCst) {
                    return;
                }
                pin::set_affinity(caller, &[cpus[round % cpus.len()]]);
                std::thread::sleep(STAY * (scale::factor() - 1));
            }
        });
        fences();
    });
}

/// Returns the panic message of a call that cannot fence.
fn refusal(call: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = catch_unwind(call).expect_err("the call went on without a fence");
    *panic.downcast::<String>().expect("a message")
}

/// Denies both kinds of fence from now on.
pub(super) fn deny_fences() {
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a seccomp filter");
    seccomp::deny(Call::SetAffinity, libc::EPERM).expect("a seccomp filter");
    // Hides the messages of expected panics only.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.to_string().contains("membarrier has stopped working") {
            print(panic);
        }
    }));
}

// Calls that need a fence panic with the reason and a remedy; adds need none and go on.
fn sums_panic_when_fences_are_denied() {
    static A: Counter = Counter::new();
    static B: Counter = Counter::new();
    to_percpu_mode(&A);
    to_percpu_mode(&B);
    A.sum();
    B.sum();
    deny_fences();
    // Threads that wait for another thread's fence panic too.
    together_while(
        4,
        |thread| {
            for _ in 0..scale::rounds(200) {
                let message = match thread {
                    0 => refusal(|| assert_eq!(A.sum(), 0)),
                    1 => refusal(|| B.set(7)),
                    2 => refusal(|| assert_eq!(A.take(), 0)),
                    _ => refusal(|| assert_eq!(B.sum(), 0)),
                };
                for word in ["membarrier", "sched_setaffinity", "THISCPU_TIER=atomic"] {
                    assert!(message.contains(word), "{message}");
                }
            }
        },
        || (0..1000).for_each(|_| A.inc()),
    );
    A.bounds();
    A.read();
}

// A call that cannot fence leaves its account unchanged; charges and uncached accounts still work.
fn accounts_stay_intact_when_fences_are_denied() {
    pin::pin(0);
    let ledger = &Ledger::<1>::new_signed();
    let [cached, other] = &[0; 2].map(|_| ledger.open());
    (0..200).for_each(|_| cached.charge(0, 0));
    cached.snapshot();
    deny_fences();
    let calls: [&dyn Fn(); 4] =
        [&|| _ = cached.snapshot(), &|| _ = cached.sum(0), &|| ledger.for_each(|_, _| ()), &|| {
            cached.charge(0, 1);
            ledger.sync();
        }];
    for (round, call) in (0..).zip(calls.into_iter().cycle().take(40)) {
        refusal(std::panic::AssertUnwindSafe(call));
        cached.charge_uncached(0, 1);
        assert_eq!(cached.read(0), round + 1);
        other.charge_uncached(0, 1);
        assert_eq!(other.snapshot(), [round + 1]);
        cached.charge(0, 1);
    }
}

// The atomic tier uses neither of the denied system calls.
fn atomic_tier_needs_no_fence() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    for call in [Call::Membarrier, Call::SetAffinity] {
        seccomp::deny(call, libc::EPERM).expect("a seccomp filter");
    }
    assert_eq!(thiscpu::tier(), Ok(Tier::Atomic));
    together(4, |_| (0..2000).for_each(|_| COUNTER.inc()));
    assert_eq!(COUNTER.sum(), 8000);
    assert_eq!(COUNTER.take(), 8000);
}

// New threads get no lane, and lose nothing; threads with a lane keep it, in a child too.
fn adds_stay_exact_when_rseq_is_denied_late() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    let add = |_| (0..20_000).for_each(|_| COUNTER.inc());
    together_while(2, add, || {
        seccomp::deny(Call::Rseq, libc::EPERM).expect("a seccomp filter");
        (0..20_000).for_each(|_| COUNTER.inc());
    });
    // Each of these adds makes a system call that fails, and restores errno.
    let add_once_more = |thread| {
        add(thread);
        assert!(errno::is_kept(|| COUNTER.inc()));
    };
    together_while(4, add_once_more, || {
        (0..100).for_each(|_| assert!(COUNTER.sum() >= 60_000));
    });
    COUNTER.add(-4);
    assert_eq!(COUNTER.sum(), 140_000);
    fork::run(|| {
        together(2, add);
        assert_eq!(COUNTER.sum(), 180_000);
    })
    .expect("an exact child");
}
