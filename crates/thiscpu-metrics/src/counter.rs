//! Counters, whose values only grow.

use std::sync::{Arc, Mutex, PoisonError};

use thiscpu::Counters;

use crate::row::Row;

/// A handle of a series that only grows.
///
/// A handle is cheap to clone; all clones are the same series.
///
/// | | cost | blocks |
/// |---|---|---|
/// | [`increment`](Counter::increment) | one section, about 1 ns; wait-free | no thread |
/// | [`absolute`](Counter::absolute) | a fence, if several CPUs use it | other calls of it |
///
/// `increment` may be called from signal handlers and in children of `fork`. `absolute` may not be
/// called from signal handlers; handles may not be created or dropped there either. Values are
/// `u64` and wrap around.
///
/// ```
/// let registry = thiscpu_metrics::Registry::new();
/// let requests = registry.counter("requests_total", "Requests so far.", &[("method", "get")])?;
/// requests.increment(3);
/// assert!(registry.render().contains("requests_total{method=\"get\"} 3\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Clone)]
pub struct Counter(pub(crate) Repr);

/// The counter that holds the value.
#[derive(Clone)]
pub(crate) enum Repr {
    Row(RowCounter),
    Group(Arc<GroupCounter>),
}

/// The number of unrelated counters that share a row.
///
/// A sum of a row costs less than a sum of each counter: it closes one gate and takes one lock.
pub(crate) const ROW_LEN: usize = 16;

/// A counter in a row of counters that were registered one after the other.
#[derive(Clone)]
pub(crate) struct RowCounter {
    pub(crate) row: Arc<Counters<ROW_LEN>>,
    pub(crate) index: usize,
}

/// Counter `I` of a row, for the facade.
///
/// The facade's handles point to the row itself. The index is part of the code that they call, so
/// an increment does not have to load or check it.
#[repr(transparent)]
pub(crate) struct FacadeCounter<const I: usize>(Counters<ROW_LEN>);

/// A counter of a group.
pub(crate) struct GroupCounter {
    pub(crate) row: Arc<dyn Row>,
    pub(crate) index: usize,
}

impl Counter {
    /// Adds `n`.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::add`].
    #[inline]
    pub fn increment(&self, n: u64) {
        match &self.0 {
            Repr::Row(own) => own.increment(n),
            Repr::Group(member) => member.increment(n),
        }
    }

    /// Raises the value to `value`, if it is less at one instant of this call.
    ///
    /// For a mirror of a counter that another component maintains. Increments by other threads
    /// between that instant and the end of the call are added on top.
    ///
    /// Costs an exact sum. Waits for other calls of `absolute`, of any counter. Must not be called
    /// from a signal handler.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::sum`].
    pub fn absolute(&self, value: u64) {
        match &self.0 {
            Repr::Row(own) => own.absolute(value),
            Repr::Group(member) => member.absolute(value),
        }
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counter").finish_non_exhaustive()
    }
}

/// One counter, in any kind of row.
pub(crate) trait CounterRef {
    fn increment(&self, n: u64);

    /// Returns the exact value.
    fn sum(&self) -> u64;

    /// Implements [`Counter::absolute`].
    fn absolute(&self, value: u64) {
        // One call at a time: two calls must not both add the same difference.
        static ONE_BY_ONE: Mutex<()> = Mutex::new(());
        let _one = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.sum();
        if now < value {
            self.increment(value - now);
        }
    }
}

// Rows add and sum `i64`, whose bits are those of the `u64`.

impl CounterRef for RowCounter {
    #[inline]
    fn increment(&self, n: u64) {
        self.row.add(self.index, n as i64);
    }

    fn sum(&self) -> u64 {
        self.row.sum(self.index) as u64
    }
}

impl<const I: usize> CounterRef for FacadeCounter<I> {
    #[inline]
    fn increment(&self, n: u64) {
        self.0.add(I, n as i64);
    }

    fn sum(&self) -> u64 {
        self.0.sum(I) as u64
    }
}

impl CounterRef for GroupCounter {
    #[inline]
    fn increment(&self, n: u64) {
        self.row.add(&[(self.index, n as i64)]);
    }

    fn sum(&self) -> u64 {
        self.row.sum(self.index) as u64
    }
}

impl<const I: usize> FacadeCounter<I> {
    fn of(row: Arc<Counters<ROW_LEN>>) -> Arc<FacadeCounter<I>> {
        let row = Arc::into_raw(row).cast::<FacadeCounter<I>>();
        // SAFETY: the pointer is from `Arc::into_raw`, whose reference this takes over. The type is
        // a transparent wrapper of a row, so size, alignment and validity are those of a row.
        unsafe { Arc::from_raw(row) }
    }
}

impl RowCounter {
    /// Returns a handle for the facade.
    pub(crate) fn to_facade(&self) -> metrics::Counter {
        macro_rules! handle {
            ($($index:literal)*) => {
                match self.index {
                    $($index => {
                        let row = Arc::clone(&self.row);
                        metrics::Counter::from_arc(FacadeCounter::<$index>::of(row))
                    })*
                    other => unreachable!("counter {other} of a row of {ROW_LEN}"),
                }
            };
        }
        handle!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }
}
