//! Sums of many counters for one fence.
//!
//! First the flips of all counters begin, one after the other; then comes the fence; then the flips
//! end. A counter's lock is held while its flip begins and while it ends, but not between. A thread
//! that sums the counter in between finds the flip incomplete, and repeats it with a fence of its
//! own. No thread holds two counters' locks, so their order does not matter.

use super::core::{Core, Storage};
use super::flip::PendingFlip;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::fence;
use crate::sys::lock::Lock;

/// A [`Counter`](crate::Counter) or [`Counters`](crate::Counters), for [`sum_all`].
///
/// This trait is sealed: other crates cannot implement it.
pub trait Summable: Sync + Sealed {}

pub(super) mod sealed {
    use super::PendingSum;

    pub trait Sealed {
        #[doc(hidden)]
        fn flips(&self) -> &dyn Flips;
    }

    /// The steps of a sum that shares its fence.
    pub trait Flips {
        fn values(&self) -> usize;

        /// Begins the sum: stores the values in `values` if they are known without a fence.
        fn begin(&self, values: &mut [i64]) -> PendingSum;

        /// Ends the sum, after the fence that `pending` needed: stores the values, if not done.
        fn end(&self, pending: PendingSum, values: &mut [i64]);
    }
}
use sealed::{Flips, Sealed};

/// A sum between its two steps: the flip that must end, or `None` if the values are stored.
#[derive(Clone, Copy, Debug)]
pub struct PendingSum(Option<PendingFlip>);

/// Serializes calls. A call that met another's incomplete flips would need a fence for each.
static ONE_BY_ONE: Lock = Lock::new();

/// Returns the exact values of all these counters, in order, for one fence.
///
/// The result has one value for each [`Counter`], and `N` for each [`Counters<N>`]. Each value is
/// true at an instant of this call. The values of one `Counters` share an instant; those of
/// different counters do not. So use `sum_all` to read many unrelated counters, such as in a
/// scrape, and `Counters` if values must match.
///
/// Costs one fence (see [`Counter::sum`]). Each counter adds about 0.1 µs, or 10 ns if it is in
/// shared mode. Allocates the result.
///
/// Adds never wait. The call waits for other callers of `sum_all`, and for the callers that
/// [`Counter::sum`] waits for. A concurrent sum of one of these counters costs this call another
/// fence, as does a counter that is listed twice. Must not be called from a signal handler.
///
/// [`Counter`]: crate::Counter
/// [`Counter::sum`]: crate::Counter::sum
/// [`Counters<N>`]: crate::Counters
///
/// # Panics
///
/// Under the conditions of [`Counter::sum`]. The counters stay consistent.
///
/// # Examples
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
pub fn sum_all(counters: &[&dyn Summable]) -> Vec<i64> {
    let values = Vec::with_capacity(count(counters));
    sum_with(counters, values, Vec::with_capacity(counters.len()))
}

/// Returns what [`sum_all`] does, or `None` without memory.
#[cfg(not(thiscpu_model))]
pub fn try_sum_all(counters: &[&dyn Summable]) -> Option<Vec<i64>> {
    let (mut values, mut pending) = (Vec::new(), Vec::new());
    values.try_reserve_exact(count(counters)).ok()?;
    pending.try_reserve_exact(counters.len()).ok()?;
    Some(sum_with(counters, values, pending))
}

/// Returns how many values the counters have together.
fn count(counters: &[&dyn Summable]) -> usize {
    counters.iter().map(|counter| counter.flips().values()).sum()
}

/// Sums the counters into `values`. Both vectors are empty, and have room.
fn sum_with(
    counters: &[&dyn Summable],
    mut values: Vec<i64>,
    mut pending: Vec<PendingSum>,
) -> Vec<i64> {
    values.resize(count(counters), 0);
    let _one = ONE_BY_ONE.lock();
    each(counters, &mut values, |counter, values| pending.push(counter.begin(values)));
    if pending.iter().any(|pending| pending.0.is_some_and(PendingFlip::needs_fence)) {
        fence::fence();
    }
    let mut pending = pending.into_iter();
    each(counters, &mut values, |counter, values| {
        pending.next().into_iter().for_each(|pending| counter.end(pending, values));
    });
    values
}

/// Calls `visit` with each counter and its part of `values`.
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

impl<S: Storage> Flips for Core<S> {
    fn values(&self) -> usize {
        self.len()
    }

    fn begin(&self, values: &mut [i64]) -> PendingSum {
        if let Some(now) = self.shared_value() {
            values.fill(now.count);
            return PendingSum(None);
        }
        let guard = self.lock();
        // Another thread may have changed to shared mode before this one got the lock.
        if let Some(now) = self.shared_value() {
            values.fill(now.count);
            return PendingSum(None);
        }
        PendingSum(Some(self.begin_flip(&guard, |gate| gate).0))
    }

    fn end(&self, pending: PendingSum, values: &mut [i64]) {
        let Some(flip) = pending.0 else { return };
        let guard = self.lock();
        if self.flips.load(Relaxed) == flip.number {
            self.end_flip(&guard, flip);
        } else if self.flip_incomplete.load(Relaxed) {
            self.flip(&guard, |gate| gate);
        }
        // Otherwise another thread has flipped the counter since. That flip began after this call,
        // so its instant is within the call too.
        for (value, last) in values.iter_mut().zip(self.last()) {
            *value = last.load(Relaxed);
        }
    }
}
