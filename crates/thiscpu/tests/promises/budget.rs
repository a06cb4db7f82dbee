//! `Budget`: never more is held than the limit allows, and nobody is refused who need not be.

use std::future::Future;
use std::panic::{catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use thiscpu::{Budget, Exhausted, Tier, probe};

use crate::common::random::Random;
use crate::common::steps::{at_each_step, single_steps};
use crate::common::threads::together;
use crate::common::{ALL, EVERYWHERE, Scenario, fork, limits, pin, slow};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new("budget::is_never_exceeded", &EVERYWHERE, is_never_exceeded),
    Scenario::new("budget::refuses_nobody_wrongly", &EVERYWHERE, refuses_nobody_wrongly),
    Scenario::new("budget::says_what_there_is", &ALL, says_what_there_is),
    Scenario::new("budget::takes_what_there_is", &ALL, takes_what_there_is),
    Scenario::new("budget::limit_changes_in_use", &ALL, limit_changes_in_use),
    Scenario::new("budget::limit_below_what_is_held", &ALL, limit_below_what_is_held),
    Scenario::new("budget::limit_raised_for_who_waits", &ALL, limit_raised_for_who_waits),
    Scenario::new("budget::debts_while_the_limit_changes", &ALL, debts_while_the_limit_changes)
        .needs(single_steps),
    Scenario::new("budget::released_too_much", &ALL, released_too_much),
    Scenario::new("budget::leases", &ALL, leases),
    Scenario::new("budget::reserves", &ALL, reserves),
    Scenario::new("budget::first_come_first_served", &ALL, first_come_first_served),
    Scenario::new("budget::large_waiters_are_served", &ALL, large_waiters_are_served),
    Scenario::new("budget::waiters_time_out", &ALL, waiters_time_out),
    Scenario::new("budget::tasks_wait", &ALL, tasks_wait),
    Scenario::new("budget::tasks_are_served_in_turn", &ALL, tasks_are_served_in_turn),
    Scenario::new("budget::tasks_change_hands", &ALL, tasks_change_hands),
    Scenario::new("budget::tasks_give_up", &ALL, tasks_give_up),
    Scenario::new("budget::tasks_that_panic", &ALL, tasks_that_panic),
    Scenario::new("budget::fork_amid_an_acquire", &ALL, fork_amid_an_acquire).needs(single_steps),
    Scenario::new("budget::fork_amid_a_recall", &ALL, fork_amid_a_recall).needs(single_steps),
    Scenario::new("budget::fork_amid_a_new_limit", &ALL, fork_amid_a_new_limit).needs(single_steps),
    Scenario::new("budget::fork_leaves_a_recall", &ALL, fork_leaves_a_recall).needs(single_steps),
    Scenario::new("budget::fork_while_others_wait", &ALL, fork_while_others_wait),
    Scenario::new("budget::children_with_threads", &ALL, children_with_threads),
    Scenario::new("budget::fork_while_a_task_waits", &ALL, fork_while_a_task_waits),
    Scenario::new("budget::gives_memory_back", &ALL, gives_memory_back),
];

/// Lets lanes hold units of a budget.
fn spread(budget: &Budget) {
    for cpu in 0..pin::cpus().len() {
        pin::pin(cpu);
        for _ in 0..700 {
            budget.try_acquire(1).expect("there is room");
            budget.release(1);
        }
    }
    pin::confine(0, pin::cpus());
}

/// Threads acquire and release at random; what they hold is written down after an acquire and taken off
/// before a release, so that it is never more than what is held.
fn churn(budget: &Budget, threads: usize, most_each: u64, limit: u64) -> u64 {
    let (held, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        let mut own = 0;
        for _ in 0..slow::rounds(30_000) {
            let n = 1 + random.below(most_each);
            if own + n <= most_each && budget.try_acquire(n).is_ok() {
                own += n;
                let now = held.fetch_add(n, SeqCst) + n;
                assert!(now <= limit, "{now} are held, of {limit}");
            } else if own + n <= most_each {
                refused.fetch_add(1, SeqCst);
            } else {
                held.fetch_sub(own, SeqCst);
                budget.release(own);
                own = 0;
            }
        }
        held.fetch_sub(own, SeqCst);
        budget.release(own);
    };
    together(threads, work, || {});
    assert_eq!(budget.available(), limit);
    assert_eq!(budget.acquired(), 0);
    refused.into_inner()
}

fn is_never_exceeded() {
    // Out of reach, near, within reach of some, and within reach of each.
    for limit in [100_000, 2_000, 300, 150] {
        let budget = Budget::new(limit);
        let refused = churn(&budget, 4, 200, limit);
        assert!(limit > 200 || refused > 0, "nobody was refused within reach of the limit");
    }
}

/// The limit is what all threads can hold together, so that no refusal can be right.
fn refuses_nobody_wrongly() {
    for most_each in [3, 64, 1000, 20_000] {
        const THREADS: u64 = 4;
        let budget = Budget::new(THREADS * most_each);
        assert_eq!(churn(&budget, 4, most_each, THREADS * most_each), 0, "at {most_each} each");
    }
}

fn says_what_there_is() {
    const LIMIT: u64 = 10_000;
    let budget = Budget::new(LIMIT);
    for too_much in [u64::MAX, Budget::LIMIT_MAX + 1, Budget::LIMIT_MAX] {
        spread(&budget);
        assert_eq!(budget.try_acquire(too_much), Err(Exhausted { available: LIMIT }));
    }
    spread(&budget);
    assert_eq!((budget.available(), budget.acquired(), budget.limit()), (LIMIT, 0, LIMIT));
    budget.try_acquire(9_900).expect("so many are free");
    assert_eq!(budget.try_acquire(101), Err(Exhausted { available: 100 }));
    let message = budget.try_acquire(101).unwrap_err().to_string();
    assert!(message.contains("100 units are free"), "{message}");
    assert_eq!(budget.try_acquire(u64::MAX), Err(Exhausted { available: 100 }));
    assert_eq!((budget.available(), budget.acquired()), (100, 9_900));
    budget.release(9_900);
    assert_eq!(budget.available(), LIMIT);
    let panic = catch_unwind(|| Budget::new(Budget::LIMIT_MAX + 1)).expect_err("too large");
    assert!(panic.downcast::<&str>().expect("a message").contains("2^56"));
}

fn takes_what_there_is() {
    let budget = Budget::new(5_000);
    spread(&budget);
    assert_eq!(budget.try_acquire_up_to(4_000), 4_000);
    assert_eq!(budget.try_acquire_up_to(4_000), 1_000);
    assert_eq!(budget.try_acquire_up_to(4_000), 0);
    budget.release(7);
    assert_eq!(budget.try_acquire_up_to(u64::MAX), 7);
    budget.release(5_000);
    assert_eq!(budget.available(), 5_000);
    // More than can be counted, of what lanes hold.
    spread(&budget);
    assert_eq!(budget.try_acquire_up_to(u64::MAX), 5_000);
    budget.release(5_000);
}

fn limit_changes_in_use() {
    const MOST: u64 = 4_000;
    let budget = Budget::new(MOST);
    let over = AtomicBool::new(false);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        while !over.load(SeqCst) {
            let n = 1 + random.below(300);
            if budget.try_acquire(n).is_ok() {
                budget.release(n);
            }
        }
    };
    together(3, work, || {
        for round in 0..slow::rounds(300) {
            let limit = [MOST, 100, 2_000][round as usize % 3];
            budget.set_limit(limit);
            assert_eq!(budget.limit(), limit);
            assert!(budget.available() <= limit);
        }
        over.store(true, SeqCst);
    });
    budget.set_limit(MOST);
    assert_eq!((budget.available(), budget.acquired()), (MOST, 0));
}

/// Nothing is taken away, and nothing granted until enough has come back.
fn limit_below_what_is_held() {
    let budget = Budget::new(1_000);
    spread(&budget);
    budget.try_acquire(800).expect("so many are free");
    budget.set_limit(500);
    assert_eq!((budget.available(), budget.acquired()), (0, 800));
    budget.release(300);
    assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
    budget.release(1);
    assert_eq!(budget.try_acquire(2), Err(Exhausted { available: 1 }));
    budget.try_acquire(1).expect("one is free");
    budget.set_limit(2_000);
    assert_eq!(budget.available(), 1_500);
}

fn limit_raised_for_who_waits() {
    let budget = Budget::new(10);
    let mut future = pin!(budget.acquire_async(15));
    let mut poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    budget.set_limit(14);
    assert!(poll().is_pending());
    budget.set_limit(20);
    assert!(poll().is_ready());
    assert_eq!((budget.available(), budget.acquired()), (20, 0));
}

/// What is held above a limit may come back while that is raised, or lowered once more: it is not taken for
/// more than is held.
fn debts_while_the_limit_changes() {
    let budget = &Budget::new(1_000);
    for (old, new) in [(100, 1_000), (500, 200)] {
        let prepare = || {
            budget.try_acquire(1_000).expect("all are free");
            budget.set_limit(old);
        };
        let check = |steps, reached, ()| {
            assert_eq!(budget.acquired(), if reached { 50 } else { 1_000 }, "after {steps}");
            budget.release(budget.acquired());
            assert_eq!(budget.available(), new, "after {steps}");
            budget.set_limit(1_000);
        };
        at_each_step(prepare, || budget.set_limit(new), |_| budget.release(950), check);
    }
}

/// Whoever finds it is told both figures, and the budget is right again.
fn released_too_much() {
    let said = |what: &str, op: &dyn Fn()| {
        let panic = catch_unwind(std::panic::AssertUnwindSafe(op)).expect_err(what);
        *panic.downcast::<String>().expect("a message")
    };
    let budget = Budget::new(100);
    budget.try_acquire(10).expect("so many are free");
    let message = said("a tight budget", &|| budget.release(11));
    assert!(message.contains("11 units") && message.contains("only 10"), "{message}");
    assert_eq!((budget.available(), budget.acquired()), (100, 0));
    budget.try_acquire(10).expect("so many are free");
    let message = said("no budget is so large", &|| budget.release(u64::MAX));
    assert!(message.contains("only 10"), "{message}");
    if thiscpu::tier() == Ok(Tier::Atomic) {
        return;
    }
    let budget = Budget::new(10_000);
    spread(&budget);
    let message = said("no lane holds so much", &|| budget.release(u64::MAX));
    assert!(message.contains("only 0"), "{message}");
    spread(&budget);
    // Into a lane, where it is not seen.
    budget.release(25);
    let message = said("gathered", &|| _ = budget.available());
    assert!(message.contains("25 units more") && message.contains("10000"), "{message}");
    assert_eq!((budget.available(), budget.acquired()), (10_000, 0));
}

fn leases() {
    let (budget, other) = (Budget::new(2_000), Budget::new(1));
    spread(&budget);
    let mut lease = budget.lease(1_000).expect("so many are free");
    assert!(lease.split(1_001).is_none());
    let part = lease.split(400).expect("it holds more");
    assert_eq!((lease.units(), part.units(), budget.acquired()), (600, 400, 1_000));
    drop(part);
    assert_eq!(budget.acquired(), 600);
    lease.merge(budget.lease(50).expect("so many are free"));
    assert_eq!((lease.units(), budget.acquired()), (650, 650));
    assert_eq!(budget.lease(1_351).unwrap_err().available, 1_350);
    let stranger = other.lease(1).expect("one is free");
    let merged = catch_unwind(std::panic::AssertUnwindSafe(|| lease.merge(stranger)));
    assert!(merged.is_err());
    assert_eq!((lease.forget(), other.acquired()), (650, 0));
    assert_eq!(budget.acquired(), 650);
    budget.release(650);
}

fn reserves() {
    let budget = Budget::new(500);
    let reserve = budget.try_reserve(100).expect("so many are free");
    budget.try_acquire(400).expect("so many are free");
    assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
    let lease = reserve.lease(30).expect("set aside");
    assert_eq!((reserve.available(), reserve.units()), (70, 100));
    assert_eq!(reserve.lease(71).unwrap_err().available, 70);
    drop(lease);
    // What a lease is forgotten with stays acquired.
    let forgotten = reserve.lease(25).expect("set aside").forget();
    drop(reserve);
    assert_eq!(budget.available(), 75);
    budget.release(forgotten);
    // A lease leads to the reserve's own budget; whatever its limit is made, no units are.
    let reserve = budget.try_reserve(100).expect("so many are free");
    let lease = reserve.lease(30).expect("set aside");
    lease.budget().set_limit(1_000);
    drop(lease);
    drop(reserve);
    assert_eq!((budget.available(), budget.acquired()), (100, 400));
}

/// Until somebody is queued, and what is free is promised to the first; or until that does not seem to
/// come about: whoever is waited for must be served before a test can fail.
fn until_queued(budget: &Budget) {
    for _ in 0..10_000 {
        if budget.available() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Who wants much and came first is served before those who want little and came later.
fn first_come_first_served() {
    let budget = &Budget::new(100);
    budget.try_acquire(90).expect("so many are free");
    let order = &Mutex::new(Vec::new());
    let wait = move |n: u64| {
        budget.acquire(n);
        order.lock().expect("no panic").push(n);
    };
    std::thread::scope(|threads| {
        let first = threads.spawn(move || wait(50));
        until_queued(budget);
        let others = [1, 20, 3].map(|n| threads.spawn(move || wait(n)));
        // Less than the first wants, though more than the others.
        budget.release(39);
        let refused = budget.try_acquire(1);
        let served = order.lock().expect("no panic").clone();
        budget.release(1);
        first.join().expect("no panic");
        budget.release(50);
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(refused, Err(Exhausted { available: 0 }), "they are promised");
        assert_eq!(served, []);
    });
    let order = order.lock().expect("no panic");
    assert_eq!((order.len(), order[0]), (4, 50));
    assert_eq!(budget.acquired(), 74);
}

/// One who wants nearly all is served among many who want little.
fn large_waiters_are_served() {
    let budget = Budget::new(1_000);
    let over = AtomicBool::new(false);
    let work = |thread: usize| {
        if thread == 0 {
            for _ in 0..slow::rounds(200) {
                budget.acquire(999);
                budget.release(999);
            }
            over.store(true, SeqCst);
        }
        while !over.load(SeqCst) {
            budget.acquire(5);
            budget.release(5);
        }
    };
    together(4, work, || {});
    assert_eq!(budget.available(), 1_000);
}

fn waiters_time_out() {
    let budget = Budget::new(100);
    let short = Duration::from_micros(50);
    budget.try_acquire(60).expect("so many are free");
    assert_eq!(budget.acquire_timeout(41, short), Err(Exhausted { available: 40 }));
    assert_eq!(budget.acquire_timeout(u64::MAX, short), Err(Exhausted { available: 40 }));
    assert_eq!(budget.acquire_timeout(40, short), Ok(()));
    budget.release(100);
    // Granted and timed out at the same time, over and over.
    let work = |_| {
        for _ in 0..slow::rounds(3_000) {
            if budget.acquire_timeout(70, Duration::from_micros(3)).is_ok() {
                budget.release(70);
            }
        }
    };
    together(4, work, || {});
    assert_eq!(budget.available(), 100);
}

/// Wakes a thread that polls.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn tasks_wait() {
    let budget = Budget::new(100);
    let work = |thread: usize| {
        for round in 0..slow::rounds(3_000) {
            if (thread as u64 + round).is_multiple_of(3) {
                budget.acquire(60);
                budget.release(60);
            } else {
                let lease = block_on(budget.acquire_async(70));
                assert_eq!(lease.units(), 70);
            }
        }
    };
    together(4, work, || {});
    assert_eq!(budget.available(), 100);
}

/// One after the other, in the order in which they began to wait.
fn tasks_are_served_in_turn() {
    let budget = Budget::new(100);
    budget.try_acquire(90).expect("so many are free");
    let mut tasks = [50, 5, 20].map(|n| Some(Box::pin(budget.acquire_async(n))));
    let mut order = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    for (released, served) in [(0, 0), (39, 0), (1, 1), (4, 1), (1, 2), (20, 3)] {
        budget.release(released);
        for task in &mut tasks {
            let poll = task.as_mut().map(|task| task.as_mut().poll(&mut context));
            if let Some(Poll::Ready(lease)) = poll {
                order.push(lease.forget());
                *task = None;
            }
        }
        assert_eq!(order, [50, 5, 20][..served]);
        // What is there is promised while somebody waits; after the last nothing is there.
        assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
    }
}

/// A task is woken by the waker of its last poll, and not under the budget's lock.
fn tasks_change_hands() {
    static BUDGET: Budget = Budget::new(100);
    struct Asks(AtomicU64);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            let (send, receive) = std::sync::mpsc::channel();
            std::thread::spawn(move || send.send(BUDGET.available()));
            let free = receive.recv_timeout(Duration::from_secs(5)).expect("nobody holds the lock");
            self.0.fetch_add(1 + free, SeqCst);
        }
    }
    BUDGET.try_acquire(60).expect("so many are free");
    let mut future = pin!(BUDGET.acquire_async(70));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let asks = Arc::new(Asks(AtomicU64::new(0)));
    let waker = Waker::from(asks.clone());
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    BUDGET.release(40);
    assert_eq!(asks.0.load(SeqCst), 11, "10 are left");
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(BUDGET.available(), 80);
}

/// A future that is dropped, also as it is granted, leaves nothing behind.
fn tasks_give_up() {
    let budget = Budget::new(100);
    budget.try_acquire(60).expect("so many are free");
    {
        let mut future = pin!(budget.acquire_async(70));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        budget.release(60);
        assert_eq!(budget.available(), 30);
    }
    assert_eq!(budget.available(), 100);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..slow::rounds(3_000) {
            let mut future = pin!(budget.acquire_async(70));
            let polls = random.below(3);
            let taken = (0..polls).any(|_| {
                let poll = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                poll.is_ready()
            });
            if !taken && thread == 0 {
                budget.acquire(10);
                budget.release(10);
            }
        }
    };
    together(4, work, || {});
    assert_eq!(budget.available(), 100);
}

/// Who is woken after one whose waker panics is woken all the same.
fn tasks_that_panic() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker's own");
        }
    }
    let budget = Budget::new(100);
    budget.try_acquire(100).expect("all are free");
    let (mut first, mut second) = (pin!(budget.acquire_async(30)), pin!(budget.acquire_async(40)));
    let panics = Waker::from(Arc::new(Panics));
    assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let release = std::panic::AssertUnwindSafe(|| budget.release(100));
    catch_unwind(release).expect_err("the waker's panic");
    for future in [second, first] {
        assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
    assert_eq!(budget.available(), 100);
}

const LARGE: u64 = 100_000;

/// In a child: the calling thread holds what it knows of, and another may hold up to `unknown`.
fn assert_right_in_child(budget: &Budget, known: u64, unknown: u64) {
    let held = budget.acquired();
    assert!(known <= held && held <= known + unknown, "{held}, not {known} to {}", known + unknown);
    let free = budget.available();
    assert_eq!(held + free, budget.limit());
    assert_eq!(budget.try_acquire(free + 1), Err(Exhausted { available: free }));
    budget.try_acquire(free).expect("so many are free");
    budget.release(free);
    spread(budget);
    assert_eq!(budget.acquired(), held);
}

fn fork_amid_an_acquire() {
    let budget = &Budget::new(LARGE);
    spread(budget);
    // More than a lane has left, so that it borrows.
    let acquire = || budget.try_acquire(3_000).expect("there is room");
    let conflict = |_| {
        fork::run(|| assert_right_in_child(budget, 0, 3_000)).expect("a child that is right");
    };
    at_each_step(|| (), acquire, conflict, |_, _, ()| budget.release(3_000));
    assert_eq!(budget.available(), LARGE);
}

fn fork_amid_a_recall() {
    let budget = &Budget::new(LARGE);
    let conflict = |_| {
        fork::run(|| assert_right_in_child(budget, 0, 0)).expect("a child that is right");
    };
    let refused = || budget.try_acquire(LARGE + 1);
    let check = |steps, _, refused| {
        assert_eq!(refused, Err(Exhausted { available: LARGE }), "stopped after {steps}");
    };
    at_each_step(|| spread(budget), refused, conflict, check);
}

/// A recall that a fork cut in two is done again in the child: lanes would hold nothing for ever.
fn fork_leaves_a_recall() {
    let budget = &Budget::new(LARGE);
    let done_again = AtomicU64::new(0);
    let conflict = |_| {
        let child = fork::run(|| {
            let before = probe::recalls(budget);
            for _ in 0..100 {
                budget.try_acquire(1).expect("there is room");
                budget.release(1);
            }
            if probe::recalls(budget) != before {
                // A child reports by how it ends.
                resume_unwind(Box::new("done again"));
            }
        });
        done_again.fetch_add(u64::from(child.is_err()), SeqCst);
    };
    at_each_step(|| spread(budget), || budget.available(), conflict, |_, _, _| ());
    assert_eq!(done_again.into_inner() == 0, thiscpu::tier() == Ok(Tier::Atomic));
}

/// The limit is either of the two, and what is held does not depend on which.
fn fork_amid_a_new_limit() {
    let budget = &Budget::new(LARGE);
    budget.try_acquire(300).expect("there is room");
    for (old, new) in [(LARGE, LARGE / 2), (LARGE / 2, LARGE)] {
        let wrong = AtomicU64::new(0);
        let conflict = |_| {
            let child = fork::run(|| assert_right_in_child(budget, 300, 0));
            wrong.fetch_add(u64::from(child.is_err()), SeqCst);
        };
        let change = || budget.set_limit(new);
        // Not by who forks: this thread would wait for that one's answer, for a minute.
        let check = |steps, _, ()| {
            assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
            budget.set_limit(old);
        };
        // Tight all the while, so that it is short.
        at_each_step(|| (), change, conflict, check);
        budget.set_limit(new);
    }
    assert_eq!(budget.acquired(), 300);
}

/// Waiters of the parent do not stand in the way of a child.
fn fork_while_others_wait() {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("so many are free");
    std::thread::scope(|threads| {
        threads.spawn(|| budget.acquire(80));
        until_queued(budget);
        let child = fork::run(|| {
            assert_eq!(budget.try_acquire(41), Err(Exhausted { available: 40 }));
            budget.acquire(40);
            assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
            budget.release(100);
            assert_eq!(budget.available(), 100);
        });
        // The waiter first, or this would wait for it.
        budget.release(60);
        child.expect("a child that is right");
    });
    assert_eq!(budget.acquired(), 80);
}

/// Threads of a child find out at the same time that its parent's waiters are not there, and wait for
/// each other from the beginning.
fn children_with_threads() {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("so many are free");
    std::thread::scope(|threads| {
        threads.spawn(|| budget.acquire(80));
        until_queued(budget);
        let child = |_| {
            fork::run(|| {
                let work = |thread: usize| {
                    if thread == 0 {
                        budget.release(60);
                    } else if let got @ 1.. = budget.try_acquire_up_to(40) {
                        budget.release(got);
                    }
                    for _ in 0..10 {
                        budget.acquire(70);
                        budget.release(70);
                    }
                };
                together(3, work, || {});
                assert_eq!(budget.available(), 100);
            })
        };
        let children = (0..slow::rounds(100)).try_for_each(child);
        budget.release(60);
        children.expect("children that are right");
    });
    assert_eq!(budget.acquired(), 80);
}

/// A task that waited in the parent waits anew in a child, or gives up there, without a trace.
fn fork_while_a_task_waits() {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("so many are free");
    let wait = || {
        let mut future = Box::pin(budget.acquire_async(70));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        future
    };
    let (mut first, second) = (wait(), wait());
    fork::run(|| {
        assert_eq!(budget.available(), 40);
        let third = wait();
        drop(second);
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(third);
        budget.release(60);
        let poll = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_ready());
        drop(poll);
        assert_eq!(budget.available(), 100);
    })
    .expect("a child that is right");
}

fn gives_memory_back() {
    let mut before = None;
    for round in 0..slow::rounds(20_000) {
        let budget = Budget::new(LARGE);
        for _ in 0..40 {
            budget.try_acquire(1).expect("there is room");
        }
        assert_eq!(budget.acquired(), 40, "round {round}");
        before.get_or_insert_with(|| limits::memory("VmSize"));
    }
    assert_eq!(Some(limits::memory("VmSize")), before);
}
