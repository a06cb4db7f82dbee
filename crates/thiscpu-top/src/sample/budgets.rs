//! Budgets, as their last operation has left them.

use thiscpu::{BudgetState, BudgetView, SegmentView};

/// A budget.
pub(crate) struct Budget {
    pub(crate) name: String,
    /// `None` until the first look, and if the record is damaged.
    view: Option<BudgetView>,
    /// The last state that was read.
    pub(crate) state: Option<BudgetState>,
    read_in: u64,
}

impl Budget {
    pub(super) fn new(name: &str) -> Budget {
        Budget { name: name.to_owned(), view: None, state: None, read_in: 0 }
    }

    /// Reads the budget, unless this has happened in the same tick.
    pub(super) fn read(&mut self, segment: &SegmentView, tick: u64) {
        if self.read_in == tick {
            return;
        }
        self.read_in = tick;
        if self.view.is_none() {
            self.view = segment.budget(&self.name).ok();
        }
        if let Some(view) = &self.view {
            self.state = Some(view.state());
        }
    }
}

/// Returns the units that are held, or the most that can be.
pub(crate) fn held(state: &BudgetState) -> i64 {
    (state.limit as i64).saturating_sub(state.free).max(0)
}
