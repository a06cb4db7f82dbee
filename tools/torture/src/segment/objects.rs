//! The objects of the segment under test.

use std::time::Duration;

use thiscpu::{Segment, SegmentError, SharedBudget, SharedCounter, SharedCounters};

use super::witness::WORKERS_MAX;

/// The limit of the budget. A worker's part fits a byte of the witness.
pub(super) const LIMIT: u64 = 40;

/// A wait that takes longer is a failure.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);

/// The objects, as one process has them.
pub(super) struct Objects {
    /// All workers add to it, positive amounts only.
    pub(super) common: SharedCounter,
    /// Each worker adds to its own counter.
    pub(super) own: SharedCounters<WORKERS_MAX>,
    /// Each worker adds 1 to the first, and then 1 to the second.
    pub(super) steps: SharedCounters<2>,
    pub(super) budget: SharedBudget,
}

impl Objects {
    pub(super) fn of(segment: &Segment) -> Result<Objects, SegmentError> {
        Ok(Objects {
            common: segment.counter("common")?,
            own: segment.counters("own")?,
            steps: segment.counters("steps")?,
            budget: segment.budget("limit", LIMIT)?,
        })
    }
}
