//! A sandbox that is closed under way: what worked at the start is denied later.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use thiscpu::{__test_support, Counter, Counters, Ledger, Tier};

use crate::common::seccomp::{self, Call};
use crate::common::threads::{Tally, to_percpu_mode, together};
use crate::common::token::{MIXED, SetOnDrop, pass};
use crate::common::{
    ATOMIC_ONLY, SELF_REGISTERED_ONLY, Scenario, TIERS, WITH_SECTIONS, fork, pin, scale, scenario,
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

/// The fence runs on every CPU instead, and sums stay exact, also while threads move.
fn sums_stay_exact_when_membarrier_is_denied_late() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    COUNTER.sum();
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a filter");
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
    together(3, add, || {
        for _ in 0..scale::rounds(200) {
            let (done, [_, sum], begun) = tally.around(|| counters.snapshot());
            assert!(done <= sum && sum <= begun, "{done} <= {sum} <= {begun}");
        }
    });
    // The fence comes back to where this thread may run. Before Linux 6.2 whoever sets an affinity loses
    // the CPUs that are offline just then; so it is tried until none was.
    let comes_back = || {
        pin::set_affinity(0, pin::cpus());
        let before = pin::allowed();
        counters.snapshot();
        pin::allowed() == before
    };
    assert!((0..100).any(|_| comes_back()));
}

/// Whoever sums is sent here and there by another thread while it runs on every CPU, and threads come
/// and go while they are listed.
fn fence_works_when_caller_is_moved() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    COUNTER.sum();
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a filter");
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
                together(1, |_| COUNTER.add(0), || ());
            }
            std::thread::sleep(SENT_ON * (scale::factor() - 1));
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

/// How long a thread is left where it was sent, times how much slower this machine is than others, which leave it at
/// once. There it waits for its turn; where that takes long, it would never run.
const SENT_ON: Duration = Duration::from_millis(2);

/// A thread that stays in sections of one CPU, and what another sees of it.
#[derive(Default)]
struct Lingerer {
    /// How many sections it has begun, or is about to begin.
    begun: AtomicU64,
    /// Changes while it is in a section.
    turns_left: AtomicU64,
}

impl Lingerer {
    fn linger(&self, over: &AtomicBool) {
        // Long for a section; but it ends by itself, should nothing reach it.
        const TURNS: u64 = 1 << 28;
        while !over.load(SeqCst) {
            self.begun.fetch_add(1, SeqCst);
            __test_support::spin(TURNS, &self.turns_left).expect("a tier");
        }
    }

    /// Waits until it is seen in a section: the number of that one. From another CPU, because a thread that
    /// takes its place ends its section.
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

    /// Waits until that section has ended, and fails if it is still under way.
    fn assert_ended(&self, section: u64) {
        let turns = self.turns_left.load(SeqCst);
        while self.begun.load(SeqCst) == section {
            if self.turns_left.load(SeqCst) != turns {
                assert_ne!(self.begun.load(SeqCst), section, "a section that no fence has reached");
            }
            std::thread::yield_now();
        }
    }
}

/// On each CPU a thread is in a section before the fence, and no longer in it after; also where the
/// caller is sent here and there meanwhile.
fn fence_reaches_every_cpu() {
    thiscpu::tier().expect("a tier");
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a filter");
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
            for round in 0..scale::rounds(100) as usize {
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
                std::thread::sleep(SENT_ON * (scale::factor() - 1));
            }
        });
        fences();
    });
}

/// What panics where there is no fence.
fn refusal(ask: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = catch_unwind(ask).expect_err("an answer without a fence");
    *panic.downcast::<String>().expect("a message")
}

/// From now on there are none.
pub(super) fn deny_fences() {
    seccomp::deny(Call::Membarrier, libc::EPERM).expect("a filter");
    seccomp::deny(Call::SetAffinity, libc::EPERM).expect("a filter");
    // Each of these panics is looked at; any other is to be seen.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.to_string().contains("membarrier has stopped working") {
            print(panic);
        }
    }));
}

/// Nothing goes on without its fence: whoever needs one is told what is denied and what to do.
/// Adds need none and go on.
fn sums_panic_when_fences_are_denied() {
    static A: Counter = Counter::new();
    static B: Counter = Counter::new();
    to_percpu_mode(&A);
    to_percpu_mode(&B);
    A.sum();
    B.sum();
    deny_fences();
    // Several at once: those who wait for another's fence are told too.
    together(
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

/// Who needs a fence for an account leaves it as it was: charges go on, and so does what needs none.
fn accounts_stay_intact_when_fences_are_denied() {
    pin::pin(0);
    let ledger = &Ledger::<1>::new_signed();
    let [cached, other] = &[0; 2].map(|_| ledger.open());
    (0..200).for_each(|_| cached.charge(0, 0));
    cached.snapshot();
    deny_fences();
    let asks: [&dyn Fn(); 4] =
        [&|| _ = cached.snapshot(), &|| _ = cached.sum(0), &|| ledger.for_each(|_, _| ()), &|| {
            cached.charge(0, 1);
            ledger.sync();
        }];
    for (round, ask) in (0..).zip(asks.into_iter().cycle().take(40)) {
        refusal(std::panic::AssertUnwindSafe(ask));
        cached.charge_uncached(0, 1);
        assert_eq!(cached.read(0), round + 1);
        other.charge_uncached(0, 1);
        assert_eq!(other.snapshot(), [round + 1]);
        cached.charge(0, 1);
    }
}

/// The atomic tier has no use for either.
fn atomic_tier_needs_no_fence() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    for call in [Call::Membarrier, Call::SetAffinity] {
        seccomp::deny(call, libc::EPERM).expect("a filter");
    }
    assert_eq!(thiscpu::tier(), Ok(Tier::Atomic));
    together(4, |_| (0..2000).for_each(|_| COUNTER.inc()), || ());
    assert_eq!(COUNTER.sum(), 8000);
    assert_eq!(COUNTER.take(), 8000);
}

/// A value that no system call leaves behind.
const ERRNO: i32 = 4095;

/// New threads get no lane, and lose nothing; those that have one keep it, also in a child.
fn adds_stay_exact_when_rseq_is_denied_late() {
    static COUNTER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    let add = |_| (0..20_000).for_each(|_| COUNTER.inc());
    together(2, add, || {
        seccomp::deny(Call::Rseq, libc::EPERM).expect("a filter");
        (0..20_000).for_each(|_| COUNTER.inc());
    });
    // Each such add asks the kernel in vain, and nobody sees that in errno.
    let add_twice = |thread| {
        add(thread);
        // SAFETY: this thread's errno; the references are not kept.
        unsafe { *libc::__errno_location() = ERRNO };
        COUNTER.inc();
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, ERRNO);
    };
    together(4, add_twice, || {
        (0..100).for_each(|_| assert!(COUNTER.sum() >= 60_000));
    });
    COUNTER.add(-4);
    assert_eq!(COUNTER.sum(), 140_000);
    fork::run(|| {
        together(2, add, || {});
        assert_eq!(COUNTER.sum(), 180_000);
    })
    .expect("a child that lost nothing");
}
