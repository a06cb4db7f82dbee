//! The section of `thiscpu doctor`, which changes nothing and reports whether it was aborted.

use thiscpu::__test_support;

use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject};

pub(super) fn cases() -> Vec<Case> {
    use Conflict::{Always, Move, SameLane};
    // It needs a registration, and does not try again.
    vec![Case::new(["probe", "spin"], &[SameLane, Move, Always], || Spin)]
}

struct Spin;

impl Subject for Spin {
    /// Whether it was aborted, if sections can run.
    type Answer = Option<bool>;

    fn op(&self) -> Option<bool> {
        ops::spin(2)
    }

    fn apply(&self, _: usize, aborted: bool) -> Option<bool> {
        Some(aborted)
    }

    fn conflict_here(&self) -> Result<(), Mismatch> {
        __test_support::fence();
        Ok(())
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        Ok(())
    }
}
