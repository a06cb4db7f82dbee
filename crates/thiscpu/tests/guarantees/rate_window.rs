//! `RateWindow`: no window has more than the limit, and no call is refused wrongly.

use std::time::{Duration, Instant};

use thiscpu::{RateConfigError, RateError, RateWindow};
use thiscpu_test_support::rate_oracle::{Call, Window};

use crate::common::{
    Random, Scenario, Steps, TIERS, can_single_step, fork_at_steps, scale, scenario, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(rate_window::no_window_has_too_much, TIERS),
    scenario!(rate_window::worst_second_is_the_limit, TIERS),
    scenario!(rate_window::refusal_says_what_is_available_and_when_to_retry, TIERS),
    scenario!(rate_window::wrong_arguments_change_nothing, TIERS),
    scenario!(rate_window::child_is_exact_when_forked_during_acquire, TIERS).needs(can_single_step),
];

const HOUR: Duration = Duration::from_secs(3600);

fn no_window_has_too_much() {
    let windows = [(100, 1_000_000), (5_000, 3_000_000), (1, 64), (7, 100), (64, 6_400)];
    let (mut refused, mut admitted) = (0, 0);
    for (limit, period) in windows {
        let window = &RateWindow::new(limit, Duration::from_nanos(period));
        let start = Instant::now();
        let now = || start.elapsed().as_nanos() as u64;
        let work = |thread: usize| {
            let mut random = Random::new(thread as u64 + 1);
            let mut calls = Vec::new();
            for _ in 0..scale::rounds(40_000) {
                let units = 1 + random.below(limit.min(5));
                let began = now();
                let is_admitted = window.try_acquire(units).is_ok();
                calls.push(Call { began, ended: now(), units, is_admitted });
                (0..random.below(100)).for_each(|_| std::hint::spin_loop());
            }
            calls
        };
        let calls = together(4, work).concat();
        let oracle = Window { limit, period };
        let most = oracle.most(&calls);
        assert!(most <= limit, "{most} in a window of {period} ns, of {limit}");
        assert_eq!(oracle.wrong_refusal(&calls), None, "{limit} in {period} ns");
        let count = calls.iter().filter(|call| call.is_admitted).count();
        (admitted, refused) = (admitted + count, refused + calls.len() - count);
    }
    assert!(refused > 0 && admitted > 0, "{admitted} admitted, {refused} refused");
}

// Where a token bucket of as many units hands out nearly twice as many.
fn worst_second_is_the_limit() {
    let period = Duration::from_millis(40);
    let window = RateWindow::new(100, period);
    let mut calls = Vec::new();
    let start = Instant::now();
    while start.elapsed() < 5 * period {
        let began = start.elapsed().as_nanos() as u64;
        if window.try_acquire(1).is_ok() {
            let ended = start.elapsed().as_nanos() as u64;
            calls.push(Call { began, ended, units: 1, is_admitted: true });
        }
    }
    let oracle = Window { limit: 100, period: period.as_nanos() as u64 };
    assert_eq!(oracle.most(&calls), 100);
    assert!(calls.len() >= 300, "{}", calls.len());
}

fn refusal_says_what_is_available_and_when_to_retry() {
    let window = RateWindow::new(10, HOUR);
    window.try_acquire(4).expect("units are available");
    let refused = window.try_acquire(7).unwrap_err();
    assert_eq!(refused.available(), 6);
    let retry = refused.retry_after().expect("later");
    assert!(retry > HOUR && retry <= HOUR + HOUR / 64, "{retry:?}");
    assert_eq!((window.available(), window.try_acquire_up_to(8)), (6, 6));
    assert_eq!((window.available(), window.try_acquire_up_to(8)), (0, 0));

    let period = Duration::from_millis(64);
    let window = RateWindow::new(10, period);
    window.try_acquire(4).expect("units are available");
    std::thread::sleep(Duration::from_millis(5));
    window.try_acquire(6).expect("units are available");
    // The units of the first group suffice, or those of both are needed.
    let retries = [4, 5].map(|n| window.try_acquire(n).unwrap_err().retry_after().expect("later"));
    assert!(retries[0] + Duration::from_millis(4) <= retries[1], "{retries:?}");
    std::thread::sleep(retries[0]);
    assert_eq!(window.try_acquire(4), Ok(()));
    assert!(scale::soon(|| window.available() == 6 || window.available() == 10));
    assert!(scale::soon(|| window.available() == 10));
}

fn wrong_arguments_change_nothing() {
    use RateConfigError as Wrong;
    let wrong = |limit, period| RateWindow::try_new(limit, period).unwrap_err();
    assert_eq!(wrong(0, HOUR), Wrong::ZeroBurst);
    assert_eq!(wrong(RateWindow::LIMIT_MAX + 1, HOUR), Wrong::BurstTooLarge);
    assert_eq!(wrong(1, Duration::ZERO), Wrong::ZeroPeriod);
    assert_eq!(wrong(1, Duration::from_nanos(63)), Wrong::PeriodTooShort);
    assert_eq!(wrong(1, Duration::from_nanos(1 << 63)), Wrong::PeriodTooLong);
    let window = RateWindow::new(10, Duration::from_nanos((1 << 63) - 1));
    assert_eq!(window.try_acquire(0), Err(RateError::ZeroUnits));
    for n in [11, u64::MAX] {
        assert_eq!(window.try_acquire(n), Err(RateError::AboveBurst { burst: 10 }));
    }
    assert_eq!((window.try_acquire_up_to(0), window.available()), (0, 10));
    assert_eq!(window.try_acquire_up_to(u64::MAX), 10);
    assert!(window.try_acquire(1).unwrap_err().retry_after().expect("later") > HOUR * 1_000_000);
}

fn child_is_exact_when_forked_during_acquire() {
    // Each call ends a group and takes the lock, and some also take back what is due.
    let window = RateWindow::new(1_000, Duration::from_nanos(64));
    let child = || {
        std::thread::sleep(Duration::from_micros(1));
        assert_eq!(window.available(), 1_000);
        assert_eq!(window.try_acquire(1_000), Ok(()));
        assert_eq!(window.available() % 1_000, 0);
    };
    let acquire = || window.try_acquire(3).expect("units are available");
    fork_at_steps(Steps::Sampled, || (), acquire, child, |()| ());

    let window = RateWindow::new(1_000_000, Duration::from_secs(1 << 20));
    let child = || {
        let left = window.available();
        assert_eq!(left % 3, 1, "all of a call's units, or none");
        assert_eq!(window.try_acquire_up_to(u64::MAX), left);
        assert_eq!(window.available(), 0);
    };
    let acquire = || window.try_acquire(3).expect("units are available");
    fork_at_steps(Steps::Sampled, || (), acquire, child, |()| ());
}
