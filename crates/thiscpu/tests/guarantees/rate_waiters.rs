//! `Rate`: waiters are served in order, at their time, and may give up.

use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use thiscpu::{Pace, Rate, RateError};

use super::budget::poll;
use super::rate::SLOW;
use crate::common::{Scenario, TIERS, scale, scenario, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(rate::waiters_are_served_in_order, TIERS),
    scenario!(rate::waiters_keep_the_pace, TIERS),
    scenario!(rate::waiters_time_out, TIERS),
    scenario!(rate::close_ends_all_waits, TIERS),
    scenario!(rate::waiters_follow_new_terms, TIERS),
    scenario!(rate::slow_task_holds_up_nobody, TIERS),
    scenario!(rate::dropped_futures_leave_nothing, TIERS),
    scenario!(rate::tasks_are_woken_by_last_waker, TIERS),
    scenario!(rate::panicking_waker_does_not_stop_others, TIERS),
];

/// More than any wait of these tests takes. A wait that a bug never ends fails after it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `count` threads or tasks wait.
fn until_queued(rate: &Rate, count: usize) {
    assert!(scale::soon(|| rate.waiters() == count), "{} wait", rate.waiters());
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Makes a timer that never ends: only a nudge or a grant ends the wait.
fn never(_: Duration) -> impl Future<Output = ()> {
    pending()
}

// A large request that came first is served before small ones that came later.
fn waiters_are_served_in_order() {
    let rate = &Rate::new(Pace::per_second(200), 20);
    rate.try_acquire(20).expect("units are available");
    let order = &Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for (count, n) in [6, 1, 3].into_iter().enumerate() {
            threads.spawn(move || {
                rate.acquire(n).expect("open");
                order.lock().expect("no panic").push(n);
            });
            until_queued(rate, count + 1);
        }
        let refused = rate.try_acquire(1).unwrap_err();
        assert_eq!(refused.available(), 0);
        assert!(refused.retry_after().is_some());
        assert_eq!((rate.try_acquire_up_to(1), rate.available()), (0, 0));
    });
    assert_eq!(*order.lock().expect("no panic"), [6, 1, 3]);
    assert_eq!(rate.waiters(), 0);
}

fn waiters_keep_the_pace() {
    let rate = &Rate::new(Pace::per_second(2_000), 10);
    let began = Instant::now();
    let each = scale::rounds(100);
    together(4, |_| (0..each).for_each(|_| rate.acquire(1).expect("open")));
    let least = Duration::from_micros((4 * each).saturating_sub(10) * 500);
    assert!(began.elapsed() >= least, "{:?} for {} units", began.elapsed(), 4 * each);
}

fn waiters_time_out() {
    let rate = Rate::new(SLOW, 10);
    rate.try_acquire(8).expect("units are available");
    let began = Instant::now();
    let refused = rate.acquire_timeout(3, Duration::from_millis(20)).unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(20));
    assert_eq!(refused.available(), 2);
    assert!(refused.retry_after().is_some_and(|after| !after.is_zero()));
    assert!(matches!(rate.acquire_deadline(3, began), Err(RateError::Exceeded { .. })));
    assert_eq!((rate.waiters(), rate.available()), (0, 2));
    assert_eq!(rate.acquire_deadline(2, began), Ok(()));
}

fn close_ends_all_waits() {
    let rate = &Rate::new(SLOW, 10);
    rate.try_acquire(10).expect("units are available");
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut task = pin!(rate.acquire_async(2, never));
    assert_eq!(task.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    std::thread::scope(|threads| {
        let waiters = [3, 1].map(|n| threads.spawn(move || rate.acquire_timeout(n, PATIENCE)));
        until_queued(rate, 3);
        rate.close();
        // By the close itself, and not by a waiter that times out.
        assert_eq!(wakes.0.load(SeqCst), 1);
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), Err(RateError::Closed));
        }
    });
    assert_eq!(poll(task), Poll::Ready(Err(RateError::Closed)));
    assert_eq!(rate.waiters(), 0);
}

fn waiters_follow_new_terms() {
    let rate = &Rate::new(SLOW, 10);
    rate.try_acquire(10).expect("units are available");
    let mut task = pin!(rate.acquire_async(9, never));
    assert_eq!(poll(task.as_mut()), Poll::Pending);
    std::thread::scope(|threads| {
        let first = threads.spawn(move || rate.acquire_timeout(3, PATIENCE));
        until_queued(rate, 2);
        // The task can never get its units now, so the thread is the first.
        rate.set_burst(5).expect("a burst");
        rate.set_pace(Pace::per_second(1_000));
        assert_eq!(first.join().expect("no panic"), Ok(()));
    });
    assert_eq!(poll(task), Poll::Ready(Err(RateError::AboveBurst { burst: 5 })));
}

// A task that was granted its units and is not polled keeps nobody behind it from theirs.
fn slow_task_holds_up_nobody() {
    let rate = Rate::new(Pace::per_second(1_000), 10);
    rate.try_acquire(10).expect("units are available");
    let mut task = pin!(rate.acquire_async(1, never));
    assert_eq!(poll(task.as_mut()), Poll::Pending);
    for _ in 0..3 {
        assert_eq!(rate.acquire_timeout(2, PATIENCE), Ok(()));
    }
    assert_eq!(poll(task), Poll::Ready(Ok(())));
}

fn dropped_futures_leave_nothing() {
    let rate = Rate::new(Pace::per_second(1_000), 10);
    rate.try_acquire(10).expect("units are available");
    rate.set_pace(SLOW);
    {
        let mut waiting = pin!(rate.acquire_async(4, never));
        assert_eq!(poll(waiting.as_mut()), Poll::Pending);
        assert_eq!(rate.waiters(), 1);
    }
    let left = rate.available();
    assert_eq!(rate.waiters(), 0);
    {
        let mut granted = pin!(rate.acquire_async(4, never));
        assert_eq!(poll(granted.as_mut()), Poll::Pending);
        rate.set_pace(Pace::per_second(1_000_000));
        // This one waits behind, so it serves both.
        assert_eq!(rate.acquire(6), Ok(()));
        rate.set_pace(SLOW);
        assert!(rate.available() <= 10 - 6 - left.min(4) + left);
    }
    // What the dropped future had is there again.
    assert!(rate.available() >= 4, "{}", rate.available());
    // A future that finds its units makes no timer.
    let timer = |_| -> std::future::Ready<()> { unreachable!("no wait") };
    assert_eq!(poll(pin!(rate.acquire_async(1, timer))), Poll::Ready(Ok(())));
}

fn tasks_are_woken_by_last_waker() {
    let rate = Rate::new(SLOW, 10);
    rate.try_acquire(10).expect("units are available");
    let wakes = [(); 2].map(|()| Arc::new(Wakes::default()));
    let mut task = pin!(rate.acquire_async(1, never));
    for wakes in &wakes {
        let waker = Waker::from(Arc::clone(wakes));
        assert_eq!(task.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    }
    rate.set_pace(Pace::per_second(1_000_000));
    assert_eq!(wakes.map(|wakes| wakes.0.load(SeqCst)), [0, 1]);
    assert!(scale::soon(|| rate.waiters() == 1));
    let mut timers = 0;
    let mut other = pin!(rate.acquire_async(1, |_| {
        timers += 1;
        ready(())
    }));
    while poll(other.as_mut()).is_pending() {}
    assert_eq!(poll(task), Poll::Ready(Ok(())));
}

fn panicking_waker_does_not_stop_others() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the test");
        }
    }
    let rate = Rate::new(SLOW, 10);
    rate.try_acquire(10).expect("units are available");
    let waker = Waker::from(Arc::new(Panics));
    let mut first = pin!(rate.acquire_async(1, never));
    let mut second = pin!(rate.acquire_async(1, never));
    assert_eq!(first.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    assert_eq!(poll(second.as_mut()), Poll::Pending);
    let closed = catch_unwind(AssertUnwindSafe(|| rate.close()));
    assert!(closed.is_ok());
    assert_eq!(poll(second), Poll::Ready(Err(RateError::Closed)));
    assert_eq!(poll(first), Poll::Ready(Err(RateError::Closed)));
}
