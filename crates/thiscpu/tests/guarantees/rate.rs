//! `Rate`: it never exceeds its pace, never refuses wrongly, and tells when to try again.

use std::time::{Duration, Instant};

use thiscpu::{__test_support as support, Pace, Rate, RateConfigError, RateError, Tier};
use thiscpu_test_support::rate_oracle::{Bucket, Call};

use crate::common::{
    Random, Scenario, TIERS, TIERS_AND_SANDBOXES, pin, resources, scale, scenario, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(rate::pace_is_never_exceeded, TIERS_AND_SANDBOXES),
    scenario!(rate::never_refuses_wrongly, TIERS_AND_SANDBOXES),
    scenario!(rate::refusal_says_what_is_available_and_when_to_retry, TIERS),
    scenario!(rate::lanes_keep_to_their_share, TIERS),
    scenario!(rate::acquire_up_to_takes_all_available, TIERS),
    scenario!(rate::wrong_arguments_change_nothing, TIERS),
    scenario!(rate::terms_may_change_in_use, TIERS),
    scenario!(rate::terms_may_change_under_load, TIERS),
    scenario!(rate::units_come_at_the_pace, TIERS),
    scenario!(rate::drop_frees_lanes, TIERS),
];

const HOUR: Duration = Duration::from_secs(3600);

/// A pace at which no unit comes during a test.
pub(super) const SLOW: Pace = Pace::per(1, Duration::from_secs(1 << 32));

/// Returns whether this process has lanes.
pub(super) fn has_lanes() -> bool {
    thiscpu::tier() != Ok(Tier::Atomic)
}

/// Puts a full rate into per-CPU mode, with units lent to the lanes of all CPUs.
///
/// Takes up to 2,000 units, and 200 on each CPU.
pub(super) fn to_percpu_mode(rate: &Rate) {
    for cpu in 0..pin::cpus().len() {
        pin::pin(cpu);
        let calls = if cpu == 0 { 1_800 } else { 200 };
        (0..calls).for_each(|_| rate.try_acquire(1).expect("units are available"));
    }
    pin::set_affinity(0, pin::cpus());
    assert_eq!(support::is_percpu(rate), has_lanes());
}

/// Returns a clock that all threads can compare.
fn now(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Calls a rate at random on some threads, and returns the calls.
fn record(rate: &Rate, threads: usize, most: u64, rounds: u64) -> Vec<Call> {
    let start = Instant::now();
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64 + 1);
        let mut calls = Vec::with_capacity(rounds as usize);
        for _ in 0..rounds {
            let units = 1 + random.below(most);
            let began = now(start);
            let is_admitted = rate.try_acquire(units).is_ok();
            calls.push(Call { began, ended: now(start), units, is_admitted });
            if random.below(1_000) == 0 {
                // So that units come back, and the rate returns to per-CPU mode.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        calls
    };
    together(threads, work).concat()
}

/// Asserts that the calls of a rate kept its guarantees, and returns how many were refused.
fn check(pace: (u64, u64), burst: u64, share: u64, calls: &[Call]) -> usize {
    let excess = Bucket { pace, burst }.excess(calls);
    assert_eq!(excess, 0, "{excess} too many at {pace:?}, burst {burst}, share {share}");
    let wrong = Bucket { pace, burst: burst - share }.wrong_refusal(calls);
    assert_eq!(wrong, None, "refused at {pace:?}, burst {burst}, share {share}");
    calls.iter().filter(|call| !call.is_admitted).count()
}

/// Paces in units per nanoseconds, bursts, and the most units of a call.
const PACES: [((u64, u64), u64, u64); 6] = [
    ((1_000_000, 1_000_000_000), 200, 3),
    ((7_000_001, 1_000_000_000), 10_000, 40),
    ((30_000_000, 1_000_000_000), 4_096, 1),
    ((200_000_000, 1_000_000_000), 100_000, 1),
    ((3, 7), 3, 2),
    ((1_000_000_000, 1_000_000_000), 1_000, 60),
];

fn of(pace: (u64, u64)) -> Pace {
    Pace::per(pace.0, Duration::from_nanos(pace.1))
}

fn pace_is_never_exceeded() {
    for (pace, burst, most) in PACES {
        let rate = Rate::new(of(pace), burst);
        let calls = record(&rate, 4, most, scale::rounds(40_000));
        check(pace, burst, rate.share(), &calls);
    }
}

fn never_refuses_wrongly() {
    let mut refused = 0;
    for (pace, burst, most) in PACES {
        // Without a share for lanes, refusals are exact.
        let rate = Rate::with_share(of(pace), burst, 0);
        refused += check(pace, burst, 0, &record(&rate, 4, most, scale::rounds(20_000)));
        assert!(!support::is_percpu(&rate));
    }
    assert!(refused > 0, "no call was refused");
}

fn refusal_says_what_is_available_and_when_to_retry() {
    let rate = Rate::new(Pace::per(1, HOUR), 100);
    rate.try_acquire(90).expect("units are available");
    let refused = rate.try_acquire(12).unwrap_err();
    assert_eq!(refused.available(), 10);
    let retry = refused.retry_after().expect("later");
    assert!(retry <= 2 * HOUR && retry > 2 * HOUR - Duration::from_secs(600), "{retry:?}");
    assert!(refused.to_string().contains("only 10 units are available"), "{refused}");
    assert_eq!(rate.available(), 10);
    rate.try_acquire(10).expect("units are available");

    // The hint is enough, and one nanosecond less is not.
    let rate = Rate::with_share(Pace::per(3, Duration::from_millis(90)), 3, 0);
    rate.try_acquire(3).expect("units are available");
    let began = Instant::now();
    let retry = rate.try_acquire(1).unwrap_err().retry_after().expect("later");
    assert!(retry <= Duration::from_millis(30), "{retry:?}");
    std::thread::sleep(retry);
    assert_eq!(rate.try_acquire(1), Ok(()));
    assert!(began.elapsed() >= retry);
}

fn lanes_keep_to_their_share() {
    const BURST: u64 = 80_000;
    let rate = Rate::new(SLOW, BURST);
    to_percpu_mode(&rate);
    let taken = 1_800 + 200 * (pin::cpus().len() as u64 - 1);
    // The bucket of per-CPU mode has lost an eighth of the burst, unless that was taken.
    let least = (BURST - BURST / 8).min(BURST - taken);
    let available = rate.available();
    assert!(available <= BURST - taken && available >= least - taken, "{available}");
    let refused = rate.try_acquire(available + 1).unwrap_err();
    assert_eq!(refused.available(), available);
    rate.try_acquire(available).expect("units are available");
    assert_eq!((rate.available(), rate.share()), (0, BURST / 8));
}

fn acquire_up_to_takes_all_available() {
    let rate = Rate::new(SLOW, 80_000);
    assert_eq!(rate.try_acquire_up_to(0), 0);
    to_percpu_mode(&rate);
    let available = rate.available();
    assert_eq!(rate.try_acquire_up_to(1), 1);
    assert_eq!(rate.try_acquire_up_to(u64::MAX), available - 1);
    assert_eq!(rate.try_acquire_up_to(1), 0);
    rate.close();
    assert_eq!(rate.try_acquire_up_to(1), 0);
}

fn wrong_arguments_change_nothing() {
    use RateConfigError as Wrong;
    let century = Duration::from_secs(300 * 366 * 24 * 3600);
    assert_eq!(Pace::try_per(0, HOUR), Err(Wrong::ZeroUnits));
    assert_eq!(Pace::try_per(Pace::UNITS_MAX + 1, HOUR), Err(Wrong::TooManyUnits));
    assert_eq!(Pace::try_per(1, Duration::ZERO), Err(Wrong::ZeroPeriod));
    assert_eq!(Pace::try_per(1, century), Err(Wrong::PeriodTooLong));
    assert_eq!(Rate::try_new(SLOW, 0).unwrap_err(), Wrong::ZeroBurst);
    assert_eq!(Rate::try_new(SLOW, Rate::BURST_MAX + 1).unwrap_err(), Wrong::BurstTooLarge);

    for is_percpu in [false, true] {
        let rate = Rate::new(SLOW, 80_000);
        if is_percpu {
            to_percpu_mode(&rate);
        }
        let available = rate.available();
        assert_eq!(rate.try_acquire(0), Err(RateError::ZeroUnits));
        for n in [80_001, Rate::BURST_MAX, Rate::BURST_MAX + 1, u64::MAX] {
            assert_eq!(rate.try_acquire(n), Err(RateError::AboveBurst { burst: 80_000 }));
            assert_eq!(rate.acquire(n), Err(RateError::AboveBurst { burst: 80_000 }));
        }
        assert_eq!(rate.set_burst(0), Err(Wrong::ZeroBurst));
        assert_eq!(rate.set_burst(u64::MAX), Err(Wrong::BurstTooLarge));
        assert_eq!(rate.set_share(10_001), Err(Wrong::ShareTooLarge));
        assert_eq!((rate.burst(), rate.share()), (80_000, 10_000));
        assert_eq!(rate.available(), available);
        rate.close();
        rate.close();
        assert!(rate.is_closed());
        assert_eq!(rate.try_acquire(1), Err(RateError::Closed));
        assert_eq!(rate.acquire(1), Err(RateError::Closed));
        assert_eq!((rate.available(), rate.waiters()), (0, 0));
    }

    // The largest numbers that there are.
    let longest = Duration::from_nanos((1 << 63) - 1);
    for units in [1, Pace::UNITS_MAX] {
        let rate = Rate::new(Pace::per(units, longest), Rate::BURST_MAX);
        rate.try_acquire(Rate::BURST_MAX).expect("units are available");
        let retry = rate.try_acquire(Rate::BURST_MAX).unwrap_err().retry_after();
        assert!(retry.expect("later") > HOUR * 24 * 365 * 200);
    }
}

fn terms_may_change_in_use() {
    let rate = Rate::new(SLOW, 80_000);
    to_percpu_mode(&rate);
    let available = rate.available();
    rate.set_pace(Pace::per(7, HOUR));
    assert_eq!(rate.available(), available);
    rate.set_burst(100_000).expect("a burst");
    assert_eq!((rate.available(), rate.share()), (available, 12_500));
    rate.set_share(100).expect("a share");
    rate.set_burst(1_000).expect("a burst");
    assert_eq!((rate.available(), rate.burst(), rate.share()), (1_000, 1_000, 100));
    rate.set_burst(500).expect("a burst");
    assert_eq!(rate.share(), 62);
    rate.try_acquire(500).expect("units are available");
    // A thousand units an hour more, at once.
    rate.set_pace(Pace::per_second(1_000_000));
    assert!(scale::soon(|| rate.available() == 500));
}

// Terms that change meanwhile never let more through than the most generous ones do.
fn terms_may_change_under_load() {
    const FASTEST: (u64, u64) = (50_000_000, 1_000_000_000);
    let rate = &Rate::new(of(FASTEST), 10_000);
    let changes = scale::rounds(400);
    let calls = std::thread::scope(|scope| {
        let changer = scope.spawn(move || {
            let mut random = Random::new(3);
            for _ in 0..changes {
                rate.set_pace(Pace::per_second(1 + random.below(FASTEST.0)));
                rate.set_burst(1 + random.below(10_000)).expect("a burst");
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let calls = record(rate, 3, 20, scale::rounds(20_000));
        changer.join().expect("no panic");
        calls
    });
    let admitted = calls.iter().filter(|call| call.is_admitted).count();
    assert!(admitted > 0);
    assert_eq!(Bucket { pace: FASTEST, burst: 10_000 }.excess(&calls), 0);
}

fn units_come_at_the_pace() {
    let rate = Rate::new(Pace::per_second(1_000), 5);
    let (began, mut taken) = (Instant::now(), 0);
    while taken < 25 {
        taken += rate.try_acquire_up_to(2);
    }
    assert!(began.elapsed() >= Duration::from_millis(20), "{:?}", began.elapsed());
}

fn drop_frees_lanes() {
    let mut before = None;
    for round in 0..scale::rounds(20_000) {
        let rate = Rate::new(SLOW, 80_000);
        (0..40).for_each(|_| rate.try_acquire(1).expect("units are available"));
        assert_eq!(support::is_percpu(&rate), has_lanes(), "round {round}");
        before.get_or_insert_with(|| resources::status_bytes("VmSize"));
    }
    assert_eq!(Some(resources::status_bytes("VmSize")), before);
}
