//! Closing a budget in every order of steps, with weak memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Wake, Waker};

use thiscpu::model;
use thiscpu::{Acquire, Budget, TryAcquireError};

use crate::budget_close::{poll, poll_with};
use crate::run::in_every_order;

const LIMIT: u64 = 400;

static BUDGET: Budget = Budget::new(LIMIT);

fn hold_all() {
    BUDGET.try_acquire(LIMIT).expect("units are available");
}

/// Holds all units, and returns a future of 2 that waits.
fn queued_future() -> Pin<Box<Acquire<'static>>> {
    hold_all();
    let mut future = Box::pin(BUDGET.acquire_async(2));
    assert_eq!(poll(&mut future), None);
    future
}

/// Closes the budget on one thread, and releases 2 units on another.
fn close_and_release() -> [model::Thread<()>; 2] {
    [model::spawn(1, || BUDGET.close()), model::spawn(2, || BUDGET.release(2))]
}

/// Asserts that the budget is closed, and that `held` units are held.
fn assert_closed(held: u64) {
    assert_eq!(BUDGET.try_acquire(1), Err(TryAcquireError::Closed));
    assert_eq!((BUDGET.acquired(), BUDGET.available()), (held, LIMIT - held));
    assert_eq!((BUDGET.waiters(), BUDGET.over_released()), (0, 0));
}

// A waiter that arrives before, while or after the budget is closed learns that.
#[test]
fn close_ends_the_wait_of_a_thread() {
    in_every_order(3, || {
        hold_all();
        let waiter = model::spawn(1, || BUDGET.acquire(2).is_err());
        BUDGET.close();
        assert!(waiter.join());
        assert_closed(LIMIT);
    });
}

// A waiter gets its units or learns of the close, and the books agree with what it got.
#[test]
fn release_and_close_agree_on_a_waiter() {
    in_every_order(2, || {
        hold_all();
        let waiter = model::spawn(1, || BUDGET.acquire(2).is_ok());
        let releaser = model::spawn(2, || BUDGET.release(2));
        BUDGET.close();
        releaser.join();
        let held = if waiter.join() { LIMIT } else { LIMIT - 2 };
        assert_closed(held);
    });
}

// A future is dropped while units are granted to it, or the budget is closed.
#[test]
fn canceled_future_agrees_with_release_and_close() {
    in_every_order(2, || {
        let future = queued_future();
        let [closer, releaser] = close_and_release();
        drop(future);
        closer.join();
        releaser.join();
        assert_closed(LIMIT - 2);
    });
}

/// A waker that only remembers that it was called.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

// A future is polled, with a new waker, while units are granted to it, or the budget is closed.
#[test]
fn polled_future_agrees_with_release_and_close() {
    in_every_order(2, || {
        let mut future = queued_future();
        let [closer, releaser] = close_and_release();
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let early = poll_with(&mut future, &Waker::from(woken.clone()));
        closer.join();
        releaser.join();
        assert!(early.is_some() || woken.0.load(SeqCst), "the last waker is called");
        let end = early.or_else(|| poll(&mut future)).expect("the wait has ended");
        drop(future);
        assert_closed(LIMIT - 2 + end);
    });
}

// A lane has credit when the budget is closed: an acquire that begins later is refused.
#[test]
fn close_stops_lane_from_granting() {
    in_every_order(3, || {
        for _ in 0..40 {
            BUDGET.try_acquire(0).expect("open");
        }
        model::run_on(1);
        BUDGET.try_acquire(1).expect("units are available");
        model::run_on(0);
        let other = model::spawn(1, || BUDGET.try_acquire(5));
        BUDGET.close();
        let got = match other.join() {
            Ok(()) => 5,
            Err(refused) => {
                assert_eq!(refused, TryAcquireError::Closed);
                0
            }
        };
        assert_closed(1 + got);
    });
}
