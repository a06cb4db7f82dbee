//! Rows: counters that are read at one instant.

use std::sync::Arc;

use thiscpu::{Counters, Summable};

/// The largest number of counters of a row.
pub(crate) const LEN_MAX: usize = 64;

/// A [`Counters`] of any size.
pub(crate) trait Row: Send + Sync {
    /// Adds each amount to the counter of its index, in order.
    fn add(&self, amounts: &[(usize, i64)]);

    /// Returns the exact value of a counter.
    fn sum(&self, index: usize) -> i64;

    /// Returns the number of counters.
    fn len(&self) -> usize;

    /// Returns the row as part of a scrape.
    fn summable(&self) -> &dyn Summable;
}

impl<const N: usize> Row for Counters<N> {
    #[inline]
    fn add(&self, amounts: &[(usize, i64)]) {
        amounts.iter().for_each(|&(index, n)| Counters::add(self, index, n));
    }

    fn sum(&self, index: usize) -> i64 {
        Counters::sum(self, index)
    }

    fn len(&self) -> usize {
        N
    }

    fn summable(&self) -> &dyn Summable {
        self
    }
}

/// Returns a row of at least `counters` counters, at most [`LEN_MAX`].
///
/// Each length is compiled separately, so there are few.
pub(crate) fn with_len(counters: usize) -> Arc<dyn Row> {
    match counters {
        ..=2 => Arc::new(Counters::<2>::new()),
        3..=4 => Arc::new(Counters::<4>::new()),
        5..=8 => Arc::new(Counters::<8>::new()),
        9..=16 => Arc::new(Counters::<16>::new()),
        17..=32 => Arc::new(Counters::<32>::new()),
        33..=LEN_MAX => Arc::new(Counters::<LEN_MAX>::new()),
        _ => unreachable!("the builder rejects more than {LEN_MAX} counters in a row"),
    }
}
