//! Sums of many counters for one fence.
//!
//! The flips of all are begun, one after the other; then comes the fence; then they are ended. A counter's lock is held while its
//! flip is begun and while it is ended, not between: who sums it meanwhile finds it half done, and does it all over with a
//! fence of their own. Nobody holds two counters' locks, so no order of them matters.

use super::core::Core;
use super::flip::{FlipResult, PendingFlip};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::fence;
use crate::sys::lock::Lock;

/// A [`Counter`](crate::Counter) or [`Counters`](crate::Counters), for [`sum_all`].
///
/// Not implementable elsewhere: it stands for the banks of what it is of.
pub trait Summable: Sync + Sealed {}

pub(super) mod sealed {
    use super::PendingSum;

    pub trait Sealed {
        #[doc(hidden)]
        fn flips(&self) -> &dyn Flips;
    }

    /// The steps of a sum that shares its fence.
    pub trait Flips {
        /// How many sums it has.
        fn values(&self) -> usize;

        /// Leaves a part of each sum in `values`, or all of it.
        fn begin(&self, values: &mut [i64]) -> PendingSum;

        /// After the fence that was wanted: makes the parts whole.
        fn end(&self, half: PendingSum, values: &mut [i64]);
    }
}
use sealed::{Flips, Sealed};

/// How far a sum has come.
#[derive(Clone, Copy, Debug)]
pub struct PendingSum(Option<PendingFlip>);

/// One at a time, so that no call finds the flips of another half done, which would cost it a fence a counter.
static ONE_BY_ONE: Lock = Lock::new();

/// The exact values of all these counters, in their order: one for each [`Counter`](crate::Counter), and `N` for each
/// [`Counters<N>`](crate::Counters), which are of one instant.
///
/// Each value is true at an instant within the call, and these instants are not the same: what must be of one instant shares
/// a `Counters`. Costs one fence in all (see [`Counter::sum`](crate::Counter::sum)), and for each counter two looks at two cache lines
/// of each lane in use and some compare-exchanges, less for one that is one word (some 0.1 us and 10 ns).
/// Allocates; adders are not held up. Waits for other callers, and, counter by counter, for those that [`Counter::sum`](crate::Counter::sum)
/// waits for; who asks for the sum of one of these counters between its two looks takes a second fence.
/// A counter may be given twice, which costs fences. Not from signal handlers.
///
/// # Panics
///
/// As [`Counter::sum`](crate::Counter::sum). The counters stay whole.
///
/// ```
/// use thiscpu::{Counter, Counters, Summable, sum_all};
///
/// static REQUESTS: Counter = Counter::new();
/// static BYTES: Counters<2> = Counters::new();
/// REQUESTS.add(3);
/// BYTES.add(1, 1500);
/// let all: [&dyn Summable; 2] = [&REQUESTS, &BYTES];
/// assert_eq!(sum_all(&all), [3, 0, 1500]);
/// ```
///
/// One fence for many grace periods is what RCU does for its callers.
pub fn sum_all(counters: &[&dyn Summable]) -> Vec<i64> {
    let mut values = vec![0; counters.iter().map(|counter| counter.flips().values()).sum()];
    let mut pending = Vec::with_capacity(counters.len());
    let _one = ONE_BY_ONE.lock();
    each(counters, &mut values, |counter, values| pending.push(counter.begin(values)));
    if pending.iter().any(|half| half.0.is_some_and(PendingFlip::wants_fence)) {
        fence::fence();
    }
    let mut pending = pending.into_iter();
    each(counters, &mut values, |counter, values| {
        pending.next().into_iter().for_each(|half| counter.end(half, values));
    });
    values
}

/// Visits each with its part of the values.
fn each(
    counters: &[&dyn Summable],
    mut values: &mut [i64],
    mut visit: impl FnMut(&dyn Flips, &mut [i64]),
) {
    for counter in counters {
        let counter = counter.flips();
        let (own, rest) = core::mem::take(&mut values).split_at_mut(counter.values());
        visit(counter, own);
        values = rest;
    }
}

impl<const N: usize> Flips for Core<N> {
    fn values(&self) -> usize {
        N
    }

    fn begin(&self, values: &mut [i64]) -> PendingSum {
        if let Some(now) = self.shared_value() {
            values.fill(now.count);
            return PendingSum(None);
        }
        let guard = self.lock();
        // As in `sums`: whoever held the lock before may have made it tight.
        if let Some(now) = self.shared_value() {
            values.fill(now.count);
            return PendingSum(None);
        }
        let (pending, frozen) = self.begin_flip(&guard, |gate| gate);
        values.copy_from_slice(&frozen.values);
        PendingSum(Some(pending))
    }

    fn end(&self, half: PendingSum, values: &mut [i64]) {
        let Some(pending) = half.0 else { return };
        let guard = self.lock();
        let mut flipped = FlipResult { values: [0; N], lanes: [0; N] };
        flipped.values.copy_from_slice(values);
        if self.flips.load(Relaxed) == pending.number {
            self.end_flip(&guard, pending, &mut flipped);
        } else if self.flip_incomplete.load(Relaxed) {
            flipped = self.flip(&guard, |gate| gate);
        } else {
            // Somebody has flipped it since. That came after this call began, so its instant is as good.
            flipped.values = core::array::from_fn(|index| self.last[index].load(Relaxed));
        }
        values.copy_from_slice(&flipped.values);
    }
}
