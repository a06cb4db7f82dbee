//! The section that doctor looks at: it changes nothing, and says whether it was aborted.

use thiscpu::__test_support;

use crate::drive::Case;
use crate::ops;
use crate::subject::{Conflict, Subject, Wrong};

pub(super) fn cases() -> Vec<Case> {
    vec![Case::of::<Linger>("probe", "spin")]
}

struct Linger;

impl Subject for Linger {
    /// Whether it was aborted, if it could run.
    type Answer = Option<bool>;

    /// It needs its registration, and does not try again.
    const CONFLICTS: &'static [Conflict] = &[Conflict::SameLane, Conflict::Move, Conflict::Always];

    fn new() -> Self {
        Linger
    }

    fn op(&self) -> Option<bool> {
        ops::linger(2)
    }

    fn book(&self, _: usize, aborted: bool) -> Option<bool> {
        Some(aborted)
    }

    fn meddle(&self) -> Result<(), Wrong> {
        __test_support::fence();
        Ok(())
    }

    fn check(&mut self) -> Result<(), Wrong> {
        Ok(())
    }
}
