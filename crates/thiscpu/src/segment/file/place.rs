//! Where the counters of one name are.
//!
//! Counters that are only added to have their banks side by side in each lane. At the first
//! negative amount they get as many banks again, for negative amounts alone. So the counts of a
//! bank have one sign, and a reader that cannot write gets bounds.

use std::sync::Arc;

use super::directory::{Found, Kind, Request, Shape};
use super::error::SegmentError;
use super::mapping::Mapping;
use crate::counter::Bounds;
use crate::segment::lanes::cpu;
use crate::segment::lanes::sums::{self, Lanes};
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};

/// The banks of one counter in a lane, in bytes.
const COUNTER_BYTES: u64 = 32;

/// Returns the banks of some counters in a lane, in bytes.
pub(in crate::segment) fn lane_bytes(counters: u32) -> u64 {
    COUNTER_BYTES * u64::from(counters)
}

/// Set in the word of the banks for negative amounts, beside their offset in a lane.
pub(in crate::segment) const IN_USE: u64 = 1;
/// In place of the offset: the segment had no room, so all amounts share banks.
pub(in crate::segment) const MIXED: u64 = 2;

/// Counters of one name: their place, and the segment that keeps it mapped.
#[derive(Clone)]
pub(in crate::segment) struct Place {
    positive: Lanes,
    counters: u32,
    epoch: *const AtomicU64,
    /// The offset of the banks for negative amounts, with [`IN_USE`]; or [`MIXED`], or 0.
    negative_at: *const AtomicU64,
    segment: Arc<Mapping>,
}

// SAFETY: the pointers lead into the mapping, which `segment` keeps, and everything there is
// accessed as atomics.
unsafe impl Send for Place {}
// SAFETY: all accesses through the pointers are atomic, and `segment` keeps the mapping.
unsafe impl Sync for Place {}

impl Place {
    /// Finds the place of some counters by `find`, which may make them.
    pub(in crate::segment) fn find(
        segment: &Arc<Mapping>,
        name: &str,
        counters: u32,
        find: impl for<'a> Fn(&'a Mapping, &Request<'_>) -> Result<Found<'a>, SegmentError>,
    ) -> Result<Place, SegmentError> {
        let (kind, lane_bytes) = (Kind::counters(counters), lane_bytes(counters));
        let (lane_unit, shared_bytes) = (COUNTER_BYTES, 0);
        let shape = Shape { kind, lane_bytes, lane_unit, shared_bytes, init: &|_| () };
        let request = Request { name, shape };
        let Found { in_lane_0, own: [epoch, negative_at], .. } = find(segment, &request)?;
        // SAFETY: the directory has checked that the counters' bytes lie in every lane.
        let positive = unsafe { lanes(segment, in_lane_0) };
        Ok(Place { positive, counters, epoch, negative_at, segment: Arc::clone(segment) })
    }

    #[inline(always)]
    fn epoch(&self) -> &AtomicU64 {
        // SAFETY: the word is in the mapping, which this value keeps.
        unsafe { &*self.epoch }
    }

    fn negative_at(&self) -> &AtomicU64 {
        // SAFETY: the word is in the mapping, which this value keeps.
        unsafe { &*self.negative_at }
    }

    fn lane_bytes(&self) -> u64 {
        lane_bytes(self.counters)
    }

    #[inline(always)]
    pub(in crate::segment) fn add(&self, counter: usize, n: i64) {
        match n >= 0 {
            true => self.positive.add(counter, self.epoch(), cpu::lane(self.positive.len()), n),
            false => self.subtract(counter, n),
        }
    }

    /// Adds a negative amount.
    #[inline(never)]
    fn subtract(&self, counter: usize, n: i64) {
        let lanes = self.negative().or_else(|| self.use_negative()).unwrap_or(self.positive);
        lanes.add(counter, self.epoch(), cpu::lane(lanes.len()), n);
    }

    /// Returns the banks for negative amounts, if they are in use.
    fn negative(&self) -> Option<Lanes> {
        // Acquire: pairs with the exchange in `use_negative`. The thread of an add makes that one
        // before it loads the epoch, so a sum whose instant follows the add finds its banks.
        let word = self.negative_at().load(Acquire);
        if word & IN_USE == 0 {
            return None;
        }
        let in_lane_0 = self.segment.in_lanes(word & !IN_USE, self.lane_bytes())?;
        // If the file system has no memory for a hole in a copy of a segment, an access to it loses
        // the segment, as an access to any other missing part does.
        let _ = self.segment.ensure_in_lanes((word & !IN_USE) + self.lane_bytes());
        // SAFETY: `in_lanes` has checked that the counters' bytes lie in every lane.
        Some(unsafe { lanes(&self.segment, in_lane_0) })
    }

    /// Takes banks for negative amounts, if the segment has room.
    #[cold]
    fn use_negative(&self) -> Option<Lanes> {
        if self.negative_at().load(Acquire) == 0 {
            let taken = self.segment.take_in_lanes(self.lane_bytes(), COUNTER_BYTES);
            let word = taken.map_or(MIXED, |at| at | IN_USE);
            // AcqRel: pairs with the Acquire in `negative`. If another process came first, its
            // banks count, and nobody uses these. New banks are zeros, which are open.
            let _ = self.negative_at().compare_exchange(0, word, AcqRel, Acquire);
        }
        self.negative()
    }

    pub(in crate::segment) fn sum(&self, sums: &mut [i64]) {
        sums::sum(self.epoch(), || [Some(self.positive), self.negative()], sums);
    }

    /// Looks at a counter without a write, for [`bounds_since`](Self::bounds_since).
    ///
    /// `None` if adders save all the time.
    pub(in crate::segment) fn look(&self, counter: usize) -> Option<Look> {
        let negative = self.negative().map_or(Some(0), |lanes| lanes.count(counter))?;
        Some(Look { positive: self.positive.count(counter)?, negative })
    }

    /// Returns bounds that hold at each instant between a look and this call.
    pub(in crate::segment) fn bounds_since(&self, first: Option<Look>, counter: usize) -> Bounds {
        let bounds = first.and_then(|first| self.known_bounds(first, counter));
        bounds.unwrap_or(Bounds { low: i64::MIN, estimate: 0, high: i64::MAX })
    }

    /// Returns bounds, unless adders save all the time, or add both signs to the same banks.
    ///
    /// Positive amounts only raise their sum, and negative ones only lower theirs. So the bounds
    /// hold at each instant between the two looks.
    fn known_bounds(&self, first: Look, counter: usize) -> Option<Bounds> {
        let second = self.look(counter)?;
        if self.negative_at().load(Acquire) == MIXED || self.segment.is_lost() {
            return None;
        }
        let low = first.positive.checked_add(second.negative)?;
        let high = second.positive.checked_add(first.negative)?;
        (low <= high).then(|| Bounds { low, estimate: low.midpoint(high), high })
    }
}

/// The amounts that were added to a counter until a look at it, by their sign.
#[derive(Clone, Copy, Debug)]
pub(in crate::segment) struct Look {
    positive: i64,
    negative: i64,
}

/// Describes the lanes of a segment.
///
/// # Safety
///
/// The address leads to banks in lane 0, with as many bytes in every lane, for each counter that
/// the caller will name. The segment outlives the result.
unsafe fn lanes(segment: &Mapping, in_lane_0: usize) -> Lanes {
    let layout = &segment.layout;
    // SAFETY: the caller guarantees the banks.
    unsafe { Lanes::new(in_lane_0 as *const _, layout.lane_bytes as usize, layout.lanes as u32) }
}
