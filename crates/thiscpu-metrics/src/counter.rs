//! Counters, whose values only grow.

use std::sync::{Arc, Mutex, PoisonError};

use thiscpu::Counters;

use crate::{
    error::Error,
    exemplar::{Exemplar, Slot},
    name::Labels,
    row::Row,
};

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
    Row(Arc<RowCounter>),
    Group(Arc<GroupCounter>),
}

/// The number of unrelated counters that share a row.
///
/// A sum of a row costs less than a sum of each counter: it closes one gate and takes one lock.
pub(crate) const ROW_LEN: usize = 16;

/// A counter in a row of counters that were registered one after the other.
pub(crate) struct RowCounter {
    /// The number of the series.
    id: u64,
    row: Arc<Counters<ROW_LEN>>,
    index: usize,
    exemplar: Slot,
}

/// A counter of a group.
pub(crate) struct GroupCounter {
    /// The number of the series.
    id: u64,
    row: Arc<dyn Row>,
    index: usize,
    exemplar: Slot,
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

    /// Adds `n`, and attaches `labels` to the series as its exemplar.
    ///
    /// An exemplar names one event, usually by the label `trace_id`. Scrapes in OpenMetrics show
    /// the last one of each series, with `n` and the time. A scrape in progress may show it, and
    /// not count the addition yet. Names and values of its labels have at most 128 characters
    /// together.
    ///
    /// Takes a lock and allocates, some 100 ns. Must not be called from a signal handler.
    ///
    /// ```
    /// use thiscpu_metrics::{Format, Registry};
    ///
    /// let registry = Registry::new();
    /// let errors = registry.counter("errors_total", "", &[])?;
    /// errors.increment_with_exemplar(1, &[("trace_id", "4bf92f35")])?;
    /// let text = registry.render_as(Format::OpenMetrics);
    /// assert!(text.contains("errors_total 1 # {trace_id=\"4bf92f35\"} 1 "));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidExemplar`]; then nothing is added.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`increment`](Counter::increment).
    pub fn increment_with_exemplar(&self, n: u64, labels: Labels<'_>) -> Result<(), Error> {
        let exemplar = Exemplar::new(n as f64, labels)?;
        self.increment(n);
        self.exemplar().set(exemplar);
        Ok(())
    }

    /// Returns the number of the series.
    pub(crate) fn id(&self) -> u64 {
        match &self.0 {
            Repr::Row(own) => own.id,
            Repr::Group(member) => member.id,
        }
    }

    /// Returns the slot of the exemplar.
    pub(crate) fn exemplar(&self) -> &Slot {
        match &self.0 {
            Repr::Row(own) => &own.exemplar,
            Repr::Group(member) => &member.exemplar,
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

impl CounterRef for GroupCounter {
    #[inline]
    fn increment(&self, n: u64) {
        self.row.add(&[(self.index, n as i64)]);
    }

    fn sum(&self) -> u64 {
        self.row.sum(self.index) as u64
    }
}

impl RowCounter {
    pub(crate) fn new(id: u64, row: Arc<Counters<ROW_LEN>>, index: usize) -> RowCounter {
        RowCounter { id, row, index, exemplar: Slot::default() }
    }
}

impl GroupCounter {
    pub(crate) fn new(id: u64, row: Arc<dyn Row>, index: usize) -> GroupCounter {
        GroupCounter { id, row, index, exemplar: Slot::default() }
    }
}
