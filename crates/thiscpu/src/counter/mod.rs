//! stub docs

mod add;
mod cell;
mod core;
mod flip;
mod pair;
mod several;
mod tight;
mod window;

use std::cmp::Ordering;
use std::fmt;

pub(crate) use self::cell::bytes as bytes_per_lane;
use self::core::{Batch, Core};
pub use self::several::Counters;
use crate::section::{self, Outcome};

/// docs
pub struct Counter {
    core: Core<1>,
}

/// What a counter's value is known to be within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The value is not below this.
    pub low: i64,
    /// The estimate that [`Counter::read`] gives.
    pub value: i64,
    /// The value is not above this.
    pub high: i64,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// How the counter's value compares with the other side.
    pub ordering: Ordering,
    /// The value, if it became known exactly.
    pub exact: Option<i64>,
}

/// How often `bounds` looks again while threads without a lane change the counter.
const LOOKS: u32 = 64;

impl Counter {
    /// new
    pub const fn new() -> Self {
        Counter { core: Core::new(Batch::ByLanes) }
    }

    /// with
    pub const fn with_batch(batch: u64) -> Self {
        Counter { core: Core::new(Batch::of(batch)) }
    }

    /// add
    #[inline(always)]
    pub fn add(&self, n: i64) {
        // SAFETY: this is a counter's gate; its item is at least 32 bytes and is freed by drop.
        if unsafe { section::add_windowed(self.core.gate.word(), n) } != Outcome::Done {
            self.core.add_slow(0, n);
        }
    }

    /// inc
    #[inline(always)]
    pub fn inc(&self) {
        self.add(1);
    }

    /// dec
    #[inline(always)]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// read
    pub fn read(&self) -> i64 {
        self.core.read(0)
    }

    /// bounds
    pub fn bounds(&self) -> Bounds {
        for _ in 0..LOOKS {
            let bank = self.core.gate.look().bank();
            let [active, other] = self.core.active_first(0, bank);
            let (first, second) = (active.load(), other.load());
            if first.seal.is_tight() {
                return Bounds { low: first.count, value: first.count, high: first.count };
            }
            let lanes = self.core.published(0);
            // Both pairs are as they were, versions included, so they were so when `lanes` was
            // loaded, and the three belong to one instant.
            if active.load() == first && other.load() == second {
                let value = lanes.value.wrapping_add(first.count).wrapping_add(second.count);
                return Bounds::around(value, lanes.slack);
            }
        }
        let value = self.sum();
        Bounds { low: value, value, high: value }
    }

    /// sum
    pub fn sum(&self) -> i64 {
        match self.core.tight_value() {
            Some(now) => now.count,
            None => self.core.sums()[0],
        }
    }

    /// set
    pub fn set(&self, v: i64) {
        self.core.replace(v);
    }

    /// take
    pub fn take(&self) -> i64 {
        self.core.replace(0)
    }

    /// compare
    pub fn compare(&self, rhs: i64) -> Compared {
        if let Some(now) = self.core.tight_value() {
            self.core.want(now);
            return Compared::exactly(now.count, rhs);
        }
        let Bounds { low, high, .. } = self.bounds();
        match () {
            () if low > rhs => Compared { ordering: Ordering::Greater, exact: None },
            () if high < rhs => Compared { ordering: Ordering::Less, exact: None },
            () if low == high => Compared::exactly(low, rhs),
            () => Compared::exactly(self.core.tighten(&self.core.lock()), rhs),
        }
    }
}

impl Bounds {
    fn around(value: i64, slack: u64) -> Bounds {
        let both = i64::try_from(slack)
            .ok()
            .and_then(|slack| Some((value.checked_sub(slack)?, value.checked_add(slack)?)));
        // Where the limits would wrap around nothing is known.
        let (low, high) = both.unwrap_or((i64::MIN, i64::MAX));
        Bounds { low, value, high }
    }
}

impl Compared {
    fn exactly(value: i64, rhs: i64) -> Compared {
        Compared { ordering: value.cmp(&rhs), exact: Some(value) }
    }
}

impl Default for Counter {
    fn default() -> Self {
        Counter::new()
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("bounds", &self.bounds()).finish()
    }
}
