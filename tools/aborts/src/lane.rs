//! The lane of the calling thread, found out by the public API, and what each lane must hold.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use thiscpu::PerCpu;

use crate::ops;
use crate::subject::{Mismatch, expect};

static MARKS: LazyLock<PerCpu<u64>> = LazyLock::new(PerCpu::new);
static LAST_MARK: AtomicU64 = AtomicU64::new(0);
/// Whether a thread changed its lane at an unplanned moment, so oracles may be wrong.
static DRIFTED: AtomicBool = AtomicBool::new(false);

/// Returns the lane in the order of `PerCpu::lanes`; the shared lane is 0.
pub(crate) fn current() -> usize {
    let mark = LAST_MARK.fetch_add(1, SeqCst) + 1;
    ops::xchg(&MARKS, mark);
    MARKS.lanes().position(|value| value == mark).unwrap_or_default()
}

/// Runs `work` with the current lane, and records if that changes meanwhile.
pub(crate) fn on_lane<R>(work: impl FnOnce(usize) -> R) -> R {
    let lane = current();
    let result = work(lane);
    if current() != lane {
        DRIFTED.store(true, SeqCst);
    }
    result
}

/// Returns whether a thread drifted since the last call.
pub(crate) fn drifted() -> bool {
    DRIFTED.swap(false, SeqCst)
}

/// What each lane of a structure must hold.
pub(crate) struct LaneOracle<L>(RefCell<Vec<L>>);

impl<L: Clone + Default + PartialEq + Debug> LaneOracle<L> {
    pub(crate) fn new() -> Self {
        LaneOracle(RefCell::default())
    }

    /// Reads or changes what one lane must hold.
    pub(crate) fn at<R>(&self, lane: usize, work: impl FnOnce(&mut L) -> R) -> R {
        let mut lanes = self.0.borrow_mut();
        if lanes.len() <= lane {
            lanes.resize(lane + 1, L::default());
        }
        work(&mut lanes[lane])
    }

    /// Returns what all lanes must hold, the shared lane first.
    pub(crate) fn lanes(&self) -> Vec<L> {
        self.0.borrow().clone()
    }

    /// Checks the values of all lanes. Lanes that were never used must hold the default.
    pub(crate) fn check(&self, lanes: impl Iterator<Item = L>) -> Result<(), Mismatch> {
        let lanes: Vec<_> = lanes.collect();
        let mut expected = self.lanes();
        expected.resize(lanes.len().max(expected.len()), L::default());
        expect("the lanes", &lanes, &expected)
    }
}
