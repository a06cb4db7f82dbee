//! Sources: what a scrape reads.

use std::sync::Arc;

use thiscpu::{Counters, Summable};

use crate::{counter::ROW_LEN, gauge, histogram, row::Row, shown::Shown};

/// A row, a counter, or a structure of the program that a scrape reads.
pub(crate) enum Source {
    CounterRow {
        row: Arc<Counters<ROW_LEN>>,
        /// A bit for each counter that is a series.
        used: u64,
    },
    GroupRow {
        row: Arc<dyn Row>,
        /// The group and the labels.
        key: (usize, String),
        /// A bit for each counter that is a series.
        used: u64,
    },
    Gauge(Arc<gauge::Core>),
    Histogram(Arc<histogram::Core>),
    Shown {
        shown: Arc<dyn Shown>,
        /// The number of its series that were not removed.
        series: usize,
    },
}

impl Source {
    /// Returns the counters that the scrape sums, and how many there are.
    pub(crate) fn summable(&self) -> Option<(&dyn Summable, usize)> {
        match self {
            Source::CounterRow { row, .. } => Some((&**row, ROW_LEN)),
            Source::GroupRow { row, .. } => Some((row.summable(), row.len())),
            Source::Gauge(gauge) => Some((gauge.whole(), 1)),
            Source::Histogram(histogram) => {
                let row = histogram.row();
                Some((row.summable(), row.len()))
            }
            Source::Shown { shown, .. } => shown.summable(),
        }
    }
}
