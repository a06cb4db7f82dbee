//! Gauges: what goes up and down, and can be set.
//!
//! A gauge is a base, under a lock, plus a counter. Whole amounts go to the counter; what is set goes to the base, and so do
//! fractions and what is very large. To set it is to take the counter to 0 and to store the base, both under the lock.
//!
//! A scrape reads many gauges, and holds none of their locks while it sums their counters. The base and the sum it adds must
//! be of one instant all the same: a base from before a `set` and a sum from after it would be a value that never was. So a scrape
//! has a number:
//!
//! 1. the scrape shows its number, and then locks each gauge for a moment;
//! 2. it sums all counters, for one fence;
//! 3. it locks each gauge for a moment again, and reads its base.
//!
//! Who changes a base sees, under the lock, that a scrape is under way, and first notes the gauge's exact value as it is before the
//! change (`set` knows it anyway from what it takes), with the scrape's number, unless there is a note with that number.
//! In step 3 a note with the scrape's number is the value: it was true when it was captured, which is after the scrape began and before it ends.
//! Without one the base did not change between 1 and 3: who locked the gauge in between saw the number, because the scrape stored it
//! before it unlocked that lock in 1. So the base of step 3 was the base at the instant of the sum.
//!
//! A note from before step 1 (the number was seen early) is as good: the scrape had begun.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Amounts from here on, 2^40, go to the base: it takes millions of smaller ones, all one way, to fill the counter.
const WHOLE_MAX: f64 = 1_099_511_627_776.0;

/// A series that goes up and down: a handle, which is cheap to clone; all clones are the same series.
///
/// | | costs | blocks whom |
/// |---|---|---|
/// | [`increment`](Gauge::increment), [`decrement`](Gauge::decrement) by whole amounts below 2^40 | one section, about a nanosecond; wait-free | nobody |
/// | the same by fractions or larger amounts | a lock | who sets this gauge, or adds such amounts |
/// | [`set`](Gauge::set) | a lock; a fence too, if whole amounts were added on several CPUs | the same |
///
/// Each takes effect at one instant, also towards a scrape: what it shows was the value at an instant of the scrape. While a scrape is
/// under way, the first fraction that is added costs what `set` costs. Increments by whole amounts below 2^40 may
/// be called from signal handlers; the rest may wait for a lock and must not.
///
/// **Range.** Whole amounts below 2^40 are added up in 64 bits from one `set` to the next, and wrap around at 2^63: of the largest of them it takes 8 million more
/// up than down. All others are added up as `f64`, and rounded as those are.
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

/// Which scrape is under way, for all gauges of a registry; 0 for none.
#[derive(Default)]
pub(crate) struct CurrentScrape(AtomicU64);

/// What a gauge is made of.
pub(crate) struct Core {
    whole: thiscpu::Counter,
    base: Mutex<Base>,
    current_scrape: Arc<CurrentScrape>,
}

#[derive(Default)]
struct Base {
    value: f64,
    /// The scrape for which `captured` was captured.
    captured_for: u64,
    captured: f64,
}

impl Gauge {
    /// Adds `amount`.
    ///
    /// # Panics
    ///
    /// As [`thiscpu::Counter::add`], and for fractions as [`thiscpu::Counter::sum`].
    #[inline]
    pub fn increment(&self, amount: f64) {
        self.0.add(amount);
    }

    /// Takes `amount` away.
    ///
    /// # Panics
    ///
    /// As [`increment`](Gauge::increment).
    #[inline]
    pub fn decrement(&self, amount: f64) {
        self.0.add(-amount);
    }

    /// Makes the value `value`: what was added before is forgotten, what is added after it counts on.
    ///
    /// # Panics
    ///
    /// As [`thiscpu::Counter::take`].
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
    /// From now on scrape `number` is under way, until this is dropped.
    pub(crate) fn begin(&self, number: u64) -> impl Drop + '_ {
        struct Over<'a>(&'a AtomicU64);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                // Relaxed: to be seen late costs a note that nobody reads.
                self.0.store(0, Relaxed);
            }
        }
        // Relaxed: seen by who locks a gauge after the scrape has, because of that lock.
        self.0.store(number, Relaxed);
        Over(&self.0)
    }
}

impl Core {
    pub(crate) fn new(current_scrape: Arc<CurrentScrape>) -> Core {
        Core { whole: thiscpu::Counter::new(), base: Mutex::default(), current_scrape }
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

    /// Infinities, numbers that are none, and large amounts come here too.
    #[cold]
    fn add_fraction(&self, amount: f64) {
        let mut base = self.lock();
        base.capture(&self.current_scrape, || self.whole.sum());
        base.value += amount;
    }

    pub(crate) fn set(&self, value: f64) {
        let mut base = self.lock();
        // Costs a fence only if the counter is spread over lanes.
        let taken = self.whole.take();
        base.capture(&self.current_scrape, || taken);
        base.value = value;
    }

    /// Step 1 of a scrape: whoever locks the gauge from now on sees the scrape's number.
    pub(crate) fn begin_scrape(&self) {
        drop(self.lock());
    }

    /// Step 3: the value, with the sum that was taken since step 1.
    pub(crate) fn read_after_scrape(&self, scrape: u64, whole: i64) -> f64 {
        let base = self.lock();
        if base.captured_for == scrape { base.captured } else { base.value + whole as f64 }
    }

    fn lock(&self) -> MutexGuard<'_, Base> {
        // A panic (of a fence that cannot be had) leaves the base as it was.
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Base {
    /// Notes the value for a scrape that is under way and has none. `whole` is the counter's part of it.
    fn capture(&mut self, current_scrape: &CurrentScrape, whole: impl FnOnce() -> i64) {
        // Relaxed: pairs with the store in `begin`, by way of this gauge's lock.
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

    /// They would not fit a counter of whole amounts.
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

    /// Who changes the base when a scrape begins has not seen its number, and so has captured nothing: the scrape sums after that.
    #[test]
    fn a_scrape_waits_for_who_did_not_see_it_begin() {
        let registry = Registry::new();
        let gauge = registry.gauge("level", "", &[]).unwrap();
        let base = gauge.0.lock();
        thread::scope(|scope| {
            let scrape = scope.spawn(|| registry.render());
            // Long enough, as a rule, for the scrape to sum if nothing kept it from that.
            thread::sleep(Duration::from_millis(50));
            gauge.increment(1.0);
            drop(base);
            assert_eq!(scrape.join().unwrap(), "# TYPE level gauge\nlevel 1\n");
        });
    }
}
