//! The budgets of a segment: where they are, and what they have in common.

use std::sync::Arc;

use super::directory::{Found, Kind, Request, Shape, find_existing, find_or_make, for_each};
use super::error::SegmentError;
use super::layout::Layout;
use super::mapping::Mapping;
use super::slots::slots;
use crate::segment::budget::{Pair, Pairs, Parts, Record, Waiter, World, free_slot};

/// Where a budget is.
#[derive(Clone, Copy, Debug)]
pub(in crate::segment) struct BudgetAt {
    record: *const Record,
    pairs: Pairs,
    id: u64,
}

// SAFETY: the pointers lead into a mapping, where everything is accessed as atomics.
unsafe impl Send for BudgetAt {}
// SAFETY: all accesses through the pointers are atomic.
unsafe impl Sync for BudgetAt {}

/// The bytes of a budget in the shared area.
pub(in crate::segment) const RECORD_BYTES: u64 = size_of::<Record>() as u64;

/// Returns the bytes of a budget in each lane: a pair for each participant.
pub(in crate::segment) fn lane_bytes(layout: &Layout) -> u64 {
    layout.participants * size_of::<Pair>() as u64
}

/// Returns the shape of a segment's budgets.
fn shape<'a>(mapping: &Mapping, init: &'a dyn Fn(usize)) -> Shape<'a> {
    Shape {
        kind: Kind::BUDGET,
        lane_bytes: lane_bytes(&mapping.layout),
        lane_unit: 64,
        shared_bytes: RECORD_BYTES,
        init,
    }
}

fn at(mapping: &Mapping, found: &Found<'_>) -> BudgetAt {
    let (lanes, slots) = (mapping.layout.lanes as u32, mapping.layout.participants as u32);
    let stride = mapping.layout.lane_bytes as usize;
    // SAFETY: the directory has checked that the pairs of all slots lie in each lane.
    let pairs = unsafe { Pairs::new(found.in_lane_0 as *const Pair, stride, lanes, slots) };
    let (id, record) = found.shared;
    BudgetAt { record: record as *const Record, pairs, id }
}

impl BudgetAt {
    /// Finds a budget, or makes it with a limit.
    pub(in crate::segment) fn find_or_make(
        mapping: &Arc<Mapping>,
        name: &str,
        limit: u64,
    ) -> Result<BudgetAt, SegmentError> {
        // SAFETY: the address is that of new bytes, as many as a record has, at a cache line.
        // Nobody else accesses them before the budget is published.
        let init = |address: usize| unsafe { (address as *mut Record).write(Record::new(limit)) };
        let request = Request { name, shape: shape(mapping, &init) };
        Ok(at(mapping, &find_or_make(mapping, &request)?))
    }

    /// Finds a budget that exists, in a segment that this process can only read.
    pub(in crate::segment) fn find(
        mapping: &Arc<Mapping>,
        name: &str,
    ) -> Result<BudgetAt, SegmentError> {
        let request = Request { name, shape: shape(mapping, &|_| ()) };
        Ok(at(mapping, &find_existing(mapping, &request)?))
    }

    /// Returns whether both are of one budget in one mapping.
    pub(in crate::segment) fn is(&self, other: &BudgetAt) -> bool {
        std::ptr::eq(self.record, other.record)
    }

    #[inline(always)]
    pub(in crate::segment) fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// Returns the memory of the budget, in the mapping in which it was found.
    #[inline(always)]
    pub(in crate::segment) fn parts<'a>(&self, mapping: &'a Mapping) -> Parts<'a> {
        Parts {
            // SAFETY: the directory has checked that the record lies in the mapping.
            record: unsafe { &*self.record },
            pairs: self.pairs,
            slots: slots(mapping),
            waiters: waiters(mapping),
            id: self.id,
        }
    }
}

fn waiters(mapping: &Mapping) -> &[Waiter] {
    let first = mapping.before_lanes(mapping.layout.waiters_at()) as *const Waiter;
    // SAFETY: the layout has these waiters before the lanes, at a multiple of 64. The mapping lives
    // as long as the result. All fields are atomics, so other processes may write any values.
    unsafe { core::slice::from_raw_parts(first, mapping.layout.waiters as usize) }
}

/// Returns what a dead participant held, in all budgets, and then frees its slot.
///
/// The slot stays dead if the system has no memory for one of the budgets. Then another process, or
/// a later call, finishes this.
pub(in crate::segment) fn reclaim(
    mapping: &Mapping,
    slot: u32,
    generation: u64,
    world: &impl World,
) {
    let is_complete = for_each(mapping, &shape(mapping, &|_| ()), |found| {
        at(mapping, &found).parts(mapping).reclaim(slot, generation, world);
    });
    if is_complete {
        free_slot(&slots(mapping), waiters(mapping), slot, generation);
    }
}
