//! Which lane the calling thread is on, found out through the library's front door; and books by lane.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use thiscpu::PerCpu;

use crate::ops;
use crate::subject::{Wrong, expect};

static MARKS: LazyLock<PerCpu<u64>> = LazyLock::new(PerCpu::new);
static LAST_MARK: AtomicU64 = AtomicU64::new(0);
/// Whether a thread came to another lane where it was not told to, so that the books may be wrong.
static DRIFTED: AtomicBool = AtomicBool::new(false);

/// The lane, in the order of `PerCpu::lanes`: the slow lane is 0.
pub(crate) fn here() -> usize {
    let mark = LAST_MARK.fetch_add(1, SeqCst) + 1;
    ops::xchg(&MARKS, mark);
    MARKS.lanes().position(|there| there == mark).unwrap_or_default()
}

/// Runs what works on the lane that it is told.
pub(crate) fn on_lane<R>(work: impl FnOnce(usize) -> R) -> R {
    let lane = here();
    let result = work(lane);
    if here() != lane {
        DRIFTED.store(true, SeqCst);
    }
    result
}

/// Whether a thread drifted since this was asked last.
pub(crate) fn drifted() -> bool {
    DRIFTED.swap(false, SeqCst)
}

/// What each lane of an object must hold.
pub(crate) struct Books<L>(RefCell<Vec<L>>);

impl<L: Clone + Default + PartialEq + Debug> Books<L> {
    pub(crate) fn new() -> Self {
        Books(RefCell::default())
    }

    /// Reads or changes what one lane must hold.
    pub(crate) fn at<R>(&self, lane: usize, work: impl FnOnce(&mut L) -> R) -> R {
        let mut lanes = self.0.borrow_mut();
        if lanes.len() <= lane {
            lanes.resize(lane + 1, L::default());
        }
        work(&mut lanes[lane])
    }

    /// What all lanes must hold, the slow lane first.
    pub(crate) fn lanes(&self) -> Vec<L> {
        self.0.borrow().clone()
    }

    /// Whether lanes hold that. Those that the books do not know must be as new.
    pub(crate) fn check(&self, there: impl Iterator<Item = L>) -> Result<(), Wrong> {
        let there: Vec<_> = there.collect();
        let mut expected = self.lanes();
        expected.resize(there.len().max(expected.len()), L::default());
        expect("the lanes", &there, &expected)
    }
}
