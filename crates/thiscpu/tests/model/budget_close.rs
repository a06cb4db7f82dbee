//! Closing a budget under long random runs: every wait ends, and no unit is lost or doubled.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thiscpu::model;
use thiscpu::{Acquire, Budget, TryAcquireError};

use crate::budget::{LIMIT, percpu_budget};
use crate::run::{CPUS, in_random_orders, on_threads};

/// Polls a future once. `None` means that it waits, 0 that the budget is closed.
pub(crate) fn poll(future: &mut Pin<Box<Acquire<'_>>>) -> Option<u64> {
    poll_with(future, Waker::noop())
}

pub(crate) fn poll_with(future: &mut Pin<Box<Acquire<'_>>>, waker: &Waker) -> Option<u64> {
    match future.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(Ok(lease)) => Some(lease.forget()),
        Poll::Ready(Err(_)) => Some(0),
        Poll::Pending => None,
    }
}

/// Polls a future up to `polls` times, then drops it. Returns the units that were acquired.
fn poll_and_drop(budget: &Budget, n: u64, polls: usize) -> u64 {
    let mut future = Box::pin(budget.acquire_async(n));
    let mut ends = (0..polls).map(|_| poll(&mut future));
    ends.find_map(|end| end).unwrap_or(0)
}

/// Acquires `n` units in a random way, and returns how many it got.
fn acquire(budget: &Budget, n: u64, may_wait: bool) -> u64 {
    match model::choose(if may_wait { 5 } else { 3 }) {
        0 => budget.try_acquire(n).map_or(0, |()| n),
        1 => budget.acquire_timeout(n, Duration::ZERO).map_or(0, |()| n),
        2 => poll_and_drop(budget, n, model::choose(4)),
        _ => budget.acquire(n).map_or(0, |()| n),
    }
}

// Threads wait, give up, cancel and release while one closes the budget.
//
// The checker reports a deadlock if a wait does not end. Two threads keep their units, so only the
// close ends some waits.
#[test]
fn close_ends_waits_and_keeps_units() {
    in_random_orders(6_000, || {
        let budget = percpu_budget();
        let work = move |thread: usize| {
            let mut kept = 0;
            for _ in 0..1 + model::choose(3) {
                let n = [1, 30, 200, 390][model::choose(4)];
                let got = acquire(budget, n, thread != 0);
                if thread % 2 == 0 || kept > 0 {
                    budget.release(got);
                } else {
                    kept = got;
                }
            }
            if thread == 0 {
                budget.close();
            }
            kept
        };
        let kept: u64 = on_threads(4, CPUS, work).into_iter().sum();
        assert_eq!((budget.acquired(), budget.available()), (kept, LIMIT - kept));
        assert_eq!((budget.waiters(), budget.over_released()), (0, 0));
        assert_eq!(budget.try_acquire(1), Err(TryAcquireError::Closed));
    });
}

// Futures are canceled at random polls; threads that wait behind them are served.
#[test]
fn canceled_futures_lose_nothing() {
    in_random_orders(4_000, || {
        let budget = percpu_budget();
        on_threads(4, CPUS, move |thread| {
            for n in [[300, 10], [200, 30], [390, 1], [399, 1]][thread] {
                let got = match thread {
                    0 | 1 => poll_and_drop(budget, n, model::choose(4)),
                    _ => budget.acquire(n).map_or(0, |()| n),
                };
                budget.release(got);
            }
        });
        assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0));
        assert_eq!(budget.over_released(), 0);
    });
}
