//! Shared counters whose number is chosen at run time, for C.

use super::attached::Segment;
use super::counter::COUNTERS_MAX;
use super::file::directory::{find_existing, find_or_make};
use super::file::error::SegmentError;
use super::file::place::Place;
use super::view::SegmentView;
use crate::counter::Bounds;

/// [`SharedCounters`](crate::SharedCounters) whose number is chosen at run time.
pub struct DynSharedCounters {
    place: Place,
    len: usize,
}

impl DynSharedCounters {
    /// The largest number of counters.
    pub const LEN_MAX: usize = COUNTERS_MAX;

    /// Returns the counters of a name, as [`Segment::counters`] does.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// If `len` is 0 or exceeds [`LEN_MAX`](Self::LEN_MAX).
    pub fn open(segment: &Segment, name: &str, len: usize) -> Result<Self, SegmentError> {
        assert!(0 < len && len <= COUNTERS_MAX, "{len} counters");
        let place = Place::find(segment.mapping(), name, len as u32, find_or_make)?;
        Ok(DynSharedCounters { place, len })
    }

    /// Returns the number of counters.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one counter")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds `n` to a counter, as [`SharedCounter::add`](crate::SharedCounter::add) does.
    ///
    /// # Panics
    ///
    /// If `counter` is not below the number of counters.
    pub fn add(&self, counter: usize, n: i64) {
        assert!(counter < self.len, "counter {counter} of {}", self.len);
        self.place.add(counter, n);
    }

    /// Stores the exact values of all counters at one instant of the call.
    ///
    /// # Panics
    ///
    /// If `sums` has not one value for each counter.
    pub fn snapshot_into(&self, sums: &mut [i64]) {
        assert!(sums.len() == self.len, "{} values of {} counters", sums.len(), self.len);
        self.place.sum(sums);
    }
}

/// [`CountersView`](crate::CountersView) whose number is chosen at run time.
pub struct DynCountersView {
    place: Place,
    len: usize,
}

impl DynCountersView {
    /// Returns the counters of a name, as [`SegmentView::counters`] does.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// If `len` is 0 or exceeds [`DynSharedCounters::LEN_MAX`].
    pub fn open(view: &SegmentView, name: &str, len: usize) -> Result<Self, SegmentError> {
        assert!(0 < len && len <= COUNTERS_MAX, "{len} counters");
        let place = Place::find(view.mapping(), name, len as u32, find_existing)?;
        Ok(DynCountersView { place, len })
    }

    /// Returns the number of counters.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one counter")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns bounds of each counter, all of which hold at one instant of the call.
    pub fn bounds(&self) -> Vec<Bounds> {
        let first: Vec<_> = (0..self.len).map(|counter| self.place.look(counter)).collect();
        let since = |(counter, first)| self.place.bounds_since(first, counter);
        first.into_iter().enumerate().map(since).collect()
    }
}
