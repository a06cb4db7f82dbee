//! Gauges, whose values go up and down and can be set.
//!
//! A gauge is a base, under a lock, plus a counter. Integers are added to the counter. Values that
//! are set, fractions and large amounts go to the base. `set` takes the counter to 0 and stores the
//! base, both under the lock.
//!
//! A scrape reads many gauges, and holds none of their locks while it sums their counters. Still
//! the base and the sum must be of one instant: a base from before a `set` and a sum from after it
//! would make a value that never was. So each scrape has a number, and takes three steps:
//!
//! 1. It publishes its number, and then locks each gauge for a moment.
//! 2. It sums all counters, with one fence.
//! 3. It locks each gauge for a moment again and reads its base.
//!
//! A change of a base sees the number of a current scrape, under the lock. It then captures the
//! gauge's exact value before the change, with the scrape's number, unless a value with that number
//! was captured before. (`set` knows the exact value from taking the counter.)
//!
//! In step 3 a value with the scrape's number is the result: it was true when it was captured,
//! which was after the scrape began and before it ends. Without one, the base has not changed since
//! step 1: a change after it would have seen the number, because the scrape stored it before it
//! locked the gauge. So the base of step 3 was the base at the instant of the sum.
//!
//! A value that was captured before step 1, because the number was seen early, is valid too: the
//! scrape had begun.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Amounts from here on, 2^40, go to the base.
///
/// So it takes millions of amounts of the same sign to overflow the counter.
const WHOLE_MAX: f64 = 1_099_511_627_776.0;

/// A handle of a series that goes up and down.
///
/// A handle is cheap to clone; all clones are the same series.
///
/// | | cost | blocks |
/// |---|---|---|
/// | [`increment`](Gauge::increment) and `decrement` by integers | one section | no thread |
/// | the same by fractions or large amounts | a lock | changes of this gauge's base |
/// | [`set`](Gauge::set) | a lock; also a fence, if several CPUs added integers | the same |
///
/// *Integers* are integral amounts below 2^40. Adding one takes about 1 ns, is wait-free, and may
/// be done in signal handlers and in children of `fork`. All other changes may wait for a lock, so
/// they must not be made in a signal handler.
///
/// Each change takes effect at one instant, also for a scrape, which shows a value that was true at
/// an instant of the scrape. The first fraction that is added during a scrape costs what `set`
/// costs.
///
/// **Range.** Integers between two calls of `set` are added in 64 bits, which wrap around at 2^63:
/// after 8 million more increments than decrements of the largest. All other amounts are added and
/// rounded as `f64`.
///
/// ```
/// let registry = thiscpu_metrics::Registry::new();
/// let connections = registry.gauge("connections", "Open connections.", &[])?;
/// connections.set(10.0);
/// connections.increment(1.0);
/// connections.decrement(0.5);
/// assert!(registry.render().contains("connections 10.5\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Clone)]
pub struct Gauge(pub(crate) Arc<Core>);

/// The number of the current scrape of a registry; 0 if there is none.
#[derive(Default)]
pub(crate) struct CurrentScrape(AtomicU64);

/// The state of a gauge, which its handles share.
pub(crate) struct Core {
    /// The number of the series.
    pub(crate) id: u64,
    whole: thiscpu::Counter,
    base: Mutex<Base>,
    current_scrape: Arc<CurrentScrape>,
}

#[derive(Default)]
struct Base {
    value: f64,
    /// The scrape that `captured` is for.
    captured_for: u64,
    captured: f64,
}

impl Gauge {
    pub(crate) fn new(id: u64, current_scrape: &Arc<CurrentScrape>) -> Gauge {
        Gauge(Arc::new(Core::new(id, Arc::clone(current_scrape))))
    }

    /// Adds `amount`.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::add`]; for fractions also under those of
    /// [`thiscpu::Counter::sum`].
    #[inline]
    pub fn increment(&self, amount: f64) {
        self.0.add(amount);
    }

    /// Subtracts `amount`.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`increment`](Gauge::increment).
    #[inline]
    pub fn decrement(&self, amount: f64) {
        self.0.add(-amount);
    }

    /// Sets the value, at one instant of this call.
    ///
    /// Amounts that were added before that instant are discarded; later ones add to the new value.
    /// Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::take`].
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauge").finish_non_exhaustive()
    }
}

impl CurrentScrape {
    /// Makes `number` the current scrape, until the result is dropped.
    pub(crate) fn begin(&self, number: u64) -> impl Drop + '_ {
        struct EndOnDrop<'a>(&'a AtomicU64);
        impl Drop for EndOnDrop<'_> {
            fn drop(&mut self) {
                // Relaxed: a change that sees this late captures a value that is not read.
                self.0.store(0, Relaxed);
            }
        }
        // Relaxed: a change that locks a gauge after `begin_scrape` sees the number by that lock.
        self.0.store(number, Relaxed);
        EndOnDrop(&self.0)
    }
}

impl Core {
    pub(crate) fn new(id: u64, current_scrape: Arc<CurrentScrape>) -> Core {
        Core { id, whole: thiscpu::Counter::new(), base: Mutex::default(), current_scrape }
    }

    pub(crate) fn whole(&self) -> &thiscpu::Counter {
        &self.whole
    }

    #[inline]
    pub(crate) fn add(&self, amount: f64) {
        if amount.abs() < WHOLE_MAX && amount as i64 as f64 == amount {
            self.whole.add(amount as i64);
        } else {
            self.add_fraction(amount);
        }
    }

    /// Adds an amount to the base: a fraction, a large amount, an infinity or NaN.
    #[cold]
    fn add_fraction(&self, amount: f64) {
        let mut base = self.lock();
        base.capture(&self.current_scrape, || self.whole.sum());
        base.value += amount;
    }

    pub(crate) fn set(&self, value: f64) {
        let mut base = self.lock();
        // Costs a fence only if the counter is in per-CPU mode.
        let taken = self.whole.take();
        base.capture(&self.current_scrape, || taken);
        base.value = value;
    }

    /// Returns the value, given the counter's part of it.
    pub(crate) fn value_with(&self, whole: i64) -> f64 {
        self.lock().value + whole as f64
    }

    /// Does step 1 of a scrape: changes that lock the gauge afterwards see the scrape's number.
    pub(crate) fn begin_scrape(&self) {
        drop(self.lock());
    }

    /// Does step 3 of a scrape: returns the value. `whole` is the counter's sum of step 2.
    pub(crate) fn read_after_scrape(&self, scrape: u64, whole: i64) -> f64 {
        let base = self.lock();
        if base.captured_for == scrape { base.captured } else { base.value + whole as f64 }
    }

    fn lock(&self) -> MutexGuard<'_, Base> {
        // A panic, when a fence is denied, leaves the base unchanged.
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Base {
    /// Captures the value for the current scrape, if there is one, before the base changes.
    ///
    /// `whole` returns the counter's part of the value.
    fn capture(&mut self, current_scrape: &CurrentScrape, whole: impl FnOnce() -> i64) {
        // Relaxed: the gauge's lock orders this load after the store in `CurrentScrape::begin`, if
        // the scrape has locked the gauge.
        let scrape = current_scrape.0.load(Relaxed);
        if scrape != 0 && self.captured_for != scrape {
            self.captured = self.value + whole() as f64;
            self.captured_for = scrape;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use crate::registry::Registry;

    /// Uses amounts that would overflow a counter of 64 bits.
    #[test]
    fn large_amounts_do_not_wrap_around() {
        let registry = Registry::new();
        let gauge = registry.gauge("bytes", "", &[]).unwrap();
        (0..3_000).for_each(|_| gauge.increment(4.5e15));
        gauge.increment(-5.0);
        assert_eq!(gauge.0.read_after_scrape(1, gauge.0.whole.sum()), 3_000.0 * 4.5e15 - 5.0);
        (0..3_000).for_each(|_| gauge.decrement(4.5e15));
        assert_eq!(gauge.0.read_after_scrape(1, gauge.0.whole.sum()), -5.0);
    }

    /// Checks that a scrape sums only after changes that did not see its number have ended.
    #[test]
    fn scrape_waits_for_changes_that_began_before_it() {
        let registry = Registry::new();
        let gauge = registry.gauge("level", "", &[]).unwrap();
        let base = gauge.0.lock();
        thread::scope(|scope| {
            let scrape = scope.spawn(|| registry.render());
            // Usually long enough for the scrape to sum, if nothing prevented it.
            thread::sleep(Duration::from_millis(50));
            gauge.increment(1.0);
            drop(base);
            assert_eq!(scrape.join().unwrap(), "# TYPE level gauge\nlevel 1\n");
        });
    }
}
