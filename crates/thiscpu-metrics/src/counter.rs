//! Counters: what only grows.

use std::sync::{Arc, Mutex, PoisonError};

use thiscpu::Counters;

use crate::row::Row;

/// A series that only grows: a handle, which is cheap to clone; all clones are the same series.
///
/// | | costs | blocks whom |
/// |---|---|---|
/// | [`increment`](Counter::increment) | one section, about a nanosecond; wait-free | nobody |
/// | [`absolute`](Counter::absolute) | an exact sum: a fence if the counter is in use on several CPUs | other calls of it |
///
/// `increment` may be called from signal handlers and in children of `fork`; `absolute`, and making or dropping handles,
/// not from signal handlers. Values are those of `u64` and wrap around.
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

/// Where a counter's value is.
#[derive(Clone)]
pub(crate) enum Repr {
    Row(RowCounter),
    Group(Arc<GroupCounter>),
}

/// How many counters that have nothing to do with each other share a row. To sum a row costs less than to sum each: its gate is turned, and its lock
/// is taken, once.
pub(crate) const ROW_LEN: usize = 16;

/// A counter that is read together with whichever were registered before and after it.
#[derive(Clone)]
pub(crate) struct RowCounter {
    pub(crate) row: Arc<Counters<ROW_LEN>>,
    pub(crate) index: usize,
}

/// Counter `I` of a row, as the facade has it: what its handles point to is the row itself, and the number is in the code that they call, so an increment
/// neither loads nor checks it.
#[repr(transparent)]
pub(crate) struct FacadeCounter<const I: usize>(Counters<ROW_LEN>);

/// A counter that is read together with others.
pub(crate) struct GroupCounter {
    pub(crate) row: Arc<dyn Row>,
    pub(crate) index: usize,
}

impl Counter {
    /// Adds `n`.
    ///
    /// # Panics
    ///
    /// As [`thiscpu::Counter::add`].
    #[inline]
    pub fn increment(&self, n: u64) {
        match &self.0 {
            Repr::Row(own) => own.increment(n),
            Repr::Group(member) => member.increment(n),
        }
    }

    /// Raises the value to `value`, if it is less at an instant of this call: for mirrors of a counter that is kept
    /// elsewhere. Increments by others between that instant and the end of the call come on top.
    ///
    /// # Panics
    ///
    /// As [`thiscpu::Counter::sum`].
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

/// One counter, wherever it is.
pub(crate) trait CounterRef {
    fn increment(&self, n: u64);

    /// The exact value.
    fn sum(&self) -> u64;

    /// See [`Counter::absolute`].
    fn absolute(&self, value: u64) {
        // One at a time, so that two who raise the same counter do not both add what it lacks.
        static ONE_BY_ONE: Mutex<()> = Mutex::new(());
        let _one = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.sum();
        if now < value {
            self.increment(value - now);
        }
    }
}

// Added and summed as `i64`: the same bits.

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
        // SAFETY: the pointer is what `into_raw` gave, and what it gave up is taken here. A slot is transparent, so it has the size and the
        // alignment of a row, and a row is a valid one.
        unsafe { Arc::from_raw(row) }
    }
}

impl RowCounter {
    /// As the facade has it.
    pub(crate) fn to_facade(&self) -> metrics::Counter {
        macro_rules! slot {
            ($($index:literal)*) => {
                match self.index {
                    $($index => metrics::Counter::from_arc(FacadeCounter::<$index>::of(Arc::clone(&self.row))),)*
                    other => unreachable!("a row has no counter {other}"),
                }
            };
        }
        slot!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }
}
