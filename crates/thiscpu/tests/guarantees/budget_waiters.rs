//! `Budget`: waiters are served in order, and may give up.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use thiscpu::Budget;
use thiscpu::TryAcquireError::Exhausted;

use super::budget::poll;
use crate::common::{Random, Scenario, TIERS, scale, scenario, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(budget::waiters_are_served_in_order, TIERS),
    scenario!(budget::large_waiters_are_not_starved, TIERS),
    scenario!(budget::waiters_time_out, TIERS),
    scenario!(budget::tasks_and_threads_share_one_queue, TIERS),
    scenario!(budget::tasks_are_served_in_order, TIERS),
    scenario!(budget::tasks_are_woken_by_last_waker, TIERS),
    scenario!(budget::dropped_futures_leave_nothing, TIERS),
    scenario!(budget::panicking_waker_does_not_stop_others, TIERS),
];

/// Waits until a waiter is queued, which then has all available units reserved.
///
/// Gives up after a while, because the waiter must be served before a test can fail.
pub(super) fn until_queued(budget: &Budget) {
    for _ in 0..10_000 {
        if budget.available() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

// A large request that came first is served before small requests that came later.
fn waiters_are_served_in_order() {
    let budget = &Budget::new(100);
    budget.try_acquire(90).expect("units are available");
    let order = &Mutex::new(Vec::new());
    let wait = move |n: u64| {
        budget.acquire(n).expect("open");
        order.lock().expect("no panic").push(n);
    };
    std::thread::scope(|threads| {
        let first = threads.spawn(move || wait(50));
        until_queued(budget);
        let others = [1, 20, 3].map(|n| threads.spawn(move || wait(n)));
        // Not enough for the first waiter, but enough for the others.
        budget.release(39);
        let refused = budget.try_acquire(1);
        let served = order.lock().expect("no panic").clone();
        budget.release(1);
        first.join().expect("no panic");
        budget.release(50);
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(
            refused,
            Err(Exhausted { available: 0 }),
            "available units are the first waiter's"
        );
        assert!(served.is_empty(), "{served:?}");
    });
    let order = order.lock().expect("no panic");
    assert_eq!((order.len(), order[0]), (4, 50));
    assert_eq!(budget.acquired(), 74);
}

// A thread that wants nearly the whole limit is served among many that want little.
fn large_waiters_are_not_starved() {
    let budget = Budget::new(1_000);
    let over = AtomicBool::new(false);
    let work = |thread: usize| {
        if thread == 0 {
            for _ in 0..scale::rounds(200) {
                budget.acquire(999).expect("open");
                budget.release(999);
            }
            over.store(true, SeqCst);
        }
        while !over.load(SeqCst) {
            budget.acquire(5).expect("open");
            budget.release(5);
        }
    };
    together(4, work);
    assert_eq!(budget.available(), 1_000);
}

fn waiters_time_out() {
    let budget = Budget::new(100);
    let short = Duration::from_micros(50);
    budget.try_acquire(60).expect("units are available");
    assert_eq!(budget.acquire_timeout(41, short), Err(Exhausted { available: 40 }));
    assert_eq!(budget.acquire_timeout(u64::MAX, short), Err(Exhausted { available: 40 }));
    assert_eq!(budget.acquire_timeout(40, short), Ok(()));
    budget.release(100);
    // Grants and timeouts coincide.
    let work = |_| {
        for _ in 0..scale::rounds(3_000) {
            if budget.acquire_timeout(70, Duration::from_micros(3)).is_ok() {
                budget.release(70);
            }
        }
    };
    together(4, work);
    assert_eq!(budget.available(), 100);
}

/// A waker that unparks a polling thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn tasks_and_threads_share_one_queue() {
    let budget = Budget::new(100);
    let work = |thread: usize| {
        for round in 0..scale::rounds(3_000) {
            if (thread as u64 + round).is_multiple_of(3) {
                budget.acquire(60).expect("open");
                budget.release(60);
            } else {
                let lease = block_on(budget.acquire_async(70)).expect("open");
                assert_eq!(lease.units(), 70);
            }
        }
    };
    together(4, work);
    assert_eq!(budget.available(), 100);
}

// Tasks are served one by one, in the order of their first polls.
fn tasks_are_served_in_order() {
    let budget = Budget::new(100);
    budget.try_acquire(90).expect("units are available");
    let mut tasks = [50, 5, 20].map(|n| Some(Box::pin(budget.acquire_async(n))));
    let mut order = Vec::new();
    for (released, served) in [(0, 0), (39, 0), (1, 1), (4, 1), (1, 2), (20, 3)] {
        budget.release(released);
        for task in &mut tasks {
            let polled = task.as_mut().map(|task| poll(task.as_mut()));
            if let Some(Poll::Ready(lease)) = polled {
                order.push(lease.expect("open").forget());
                *task = None;
            }
        }
        assert_eq!(order, [50, 5, 20][..served]);
        // While a task waits, available units are its; after the last one none are left.
        assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
    }
}

// A task is woken by the waker of its last poll, and not while the budget's lock is held.
fn tasks_are_woken_by_last_waker() {
    static BUDGET: Budget = Budget::new(100);
    struct ReadsBudget(AtomicU64);
    impl Wake for ReadsBudget {
        fn wake(self: Arc<Self>) {
            let (send, receive) = std::sync::mpsc::channel();
            std::thread::spawn(move || send.send(BUDGET.available()));
            let timeout = Duration::from_secs(5);
            let available = receive.recv_timeout(timeout).expect("the lock is free");
            self.0.fetch_add(1 + available, SeqCst);
        }
    }
    BUDGET.try_acquire(60).expect("units are available");
    let mut future = pin!(BUDGET.acquire_async(70));
    assert!(poll(future.as_mut()).is_pending());
    let reads = Arc::new(ReadsBudget(AtomicU64::new(0)));
    let waker = Waker::from(reads.clone());
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    BUDGET.release(40);
    assert_eq!(reads.0.load(SeqCst), 11, "one wake that sees 10 units");
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(BUDGET.available(), 80);
}

// A dropped future leaves no units and no waiter behind, even if it was just granted.
fn dropped_futures_leave_nothing() {
    let budget = Budget::new(100);
    budget.try_acquire(60).expect("units are available");
    {
        let mut future = pin!(budget.acquire_async(70));
        assert!(poll(future.as_mut()).is_pending());
        budget.release(60);
        assert_eq!(budget.available(), 30);
    }
    assert_eq!(budget.available(), 100);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..scale::rounds(3_000) {
            let mut future = pin!(budget.acquire_async(70));
            let polls = random.below(3);
            let is_granted = (0..polls).any(|_| poll(future.as_mut()).is_ready());
            if !is_granted && thread == 0 {
                budget.acquire(10).expect("open");
                budget.release(10);
            }
        }
    };
    together(4, work);
    assert_eq!(budget.available(), 100);
}

/// Returns a waker that panics.
fn panicking_waker() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker panics");
        }
    }
    Waker::from(Arc::new(Panics))
}

/// Lets `end` end two waits, of 30 and 40 units, and returns which of them got their units.
///
/// The waker of the first panics, and `end` with it.
pub(super) fn with_panicking_waker(budget: &Budget, end: impl FnOnce()) -> [bool; 2] {
    let (mut first, mut second) = (pin!(budget.acquire_async(30)), pin!(budget.acquire_async(40)));
    let panics = panicking_waker();
    assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    catch_unwind(AssertUnwindSafe(end)).expect_err("the waker's panic");
    // The second is asked before the first, whose units may be passed on to it once it is dropped.
    let [second, first] = [second, first].map(|future| match poll(future) {
        Poll::Ready(result) => result.is_ok(),
        Poll::Pending => panic!("a wait that has not ended"),
    });
    [first, second]
}

// A waker that panics does not keep later waiters from being woken.
fn panicking_waker_does_not_stop_others() {
    let budget = Budget::new(100);
    budget.try_acquire(100).expect("units are available");
    assert_eq!(with_panicking_waker(&budget, || budget.release(100)), [true, true]);
    assert_eq!(budget.available(), 100);
    // A call of another party does not panic, and nothing is lost.
    budget.try_acquire(100).expect("units are available");
    let mut granted = pin!(budget.acquire_async(30));
    assert!(granted.as_mut().poll(&mut Context::from_waker(&panicking_waker())).is_pending());
    budget.set_limit(150);
    assert!(poll(granted).is_ready());
    assert_eq!(budget.available(), 50);
}
