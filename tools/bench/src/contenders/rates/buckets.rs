//! The token buckets.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use ratelimit::Ratelimiter;
use thiscpu::{Pace, Rate};

use super::Contender;

/// `atomic-cas`: one shared word, and no clock. It never gets new units, so it is a bound.
pub(crate) struct AtomicCas(AtomicU64);

impl Contender for AtomicCas {
    fn new(_: u32, burst: u32) -> Self {
        // Enough for any run, unless the burst is to be used up.
        Self(AtomicU64::new(if burst == 1 { 1 } else { 1 << 60 }))
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        // Relaxed, twice: a rate orders nothing.
        self.0.fetch_update(Relaxed, Relaxed, |units| units.checked_sub(1)).is_ok()
    }
}

/// `governor`: the governor crate's direct limiter, with the clock of the crate quanta.
pub(crate) struct Governor(DefaultDirectRateLimiter);

impl Contender for Governor {
    fn new(per_second: u32, burst: u32) -> Self {
        let [per_second, burst] =
            [per_second, burst].map(|n| NonZeroU32::new(n).expect("more than 0"));
        Self(RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst)))
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.0.check().is_ok()
    }
}

/// `ratelimit`: the ratelimit crate.
pub(crate) struct Ratelimit(Ratelimiter);

impl Contender for Ratelimit {
    fn new(per_second: u32, burst: u32) -> Self {
        let limiter = Ratelimiter::builder(per_second.into())
            .period(Duration::from_secs(1))
            .max_tokens(burst.into())
            .initial_available(burst.into());
        Self(limiter.build().expect("a rate"))
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.0.try_wait().is_ok()
    }
}

/// `thiscpu`: the library's rate, used as programs use it.
pub(crate) struct ThisCpu(Rate);

impl Contender for ThisCpu {
    fn new(per_second: u32, burst: u32) -> Self {
        Self(Rate::new(Pace::per_second(per_second.into()), burst.into()))
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }
}
