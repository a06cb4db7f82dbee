//! Budgets, as their last operation has left them, and the processes that hold their units.

use std::collections::BTreeMap;

use thiscpu::{BudgetParticipant, BudgetState, BudgetView, SegmentView};
use thiscpu_program::budget;

/// A budget.
pub(crate) struct Budget {
    pub(crate) name: String,
    /// `None` until the first look, and if the record is damaged.
    view: Option<BudgetView>,
    /// The last state that was read.
    pub(crate) state: Option<BudgetState>,
    /// The participants of the segment, with the units of this budget.
    pub(crate) participants: Vec<BudgetParticipant>,
    read_in: u64,
    participants_read_in: u64,
}

impl Budget {
    pub(super) fn new(name: &str) -> Budget {
        let (view, state, participants) = (None, None, Vec::new());
        let (read_in, participants_read_in) = (0, 0);
        Budget { name: name.to_owned(), view, state, participants, read_in, participants_read_in }
    }

    /// Reads the state, unless this has happened in the same tick. Returns whether it has read.
    pub(super) fn read(&mut self, segment: &SegmentView, tick: u64) -> bool {
        if self.read_in == tick {
            return false;
        }
        self.read_in = tick;
        if self.view.is_none() {
            self.view = segment.budget(&self.name).ok();
        }
        if let Some(view) = &self.view {
            self.state = Some(view.state());
        }
        true
    }

    /// Reads who holds how much, unless this has happened in the same tick.
    pub(super) fn read_participants(&mut self, tick: u64) {
        if self.participants_read_in == tick {
            return;
        }
        self.participants_read_in = tick;
        if let Some(view) = &self.view {
            self.participants = view.participants();
        }
    }

    /// Returns the units that are held.
    ///
    /// Unless the state is exact, units that are free may be lent to CPUs. Then this is the sum of
    /// what the processes hold, or [the most](Budget::taken) if they were not read with the state.
    pub(crate) fn held(&self) -> i64 {
        match &self.state {
            Some(state) if self.participants_read_in == self.read_in => {
                budget::held(state, &self.participants)
            }
            _ => self.taken(),
        }
    }

    /// Returns the units that are not in the pool: the most that processes can hold.
    ///
    /// This is known of each budget that was read, whether or not somebody has read its processes.
    pub(crate) fn taken(&self) -> i64 {
        self.state.as_ref().map_or(0, budget::taken)
    }

    /// Returns the units of the limit that are not held; negative above the limit.
    pub(crate) fn free(&self) -> i64 {
        self.state.as_ref().map_or(0, |state| (state.limit as i64).saturating_sub(self.held()))
    }

    /// Returns whether no unit is free, or somebody waits.
    pub(crate) fn is_full(&self) -> bool {
        self.state.is_some_and(|state| state.is_queued || self.held() >= state.limit as i64)
    }

    /// Returns the processes that hold units: the ended first, and by their units.
    pub(crate) fn holders(&self) -> Vec<&BudgetParticipant> {
        let mut holders: Vec<_> = self.participants.iter().filter(|it| it.held > 0).collect();
        holders.sort_by_key(|it| (it.is_alive, std::cmp::Reverse(it.held), it.slot));
        holders
    }
}

/// A process that uses budgets of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) slot: u32,
    pub(crate) pid: u32,
    pub(crate) is_alive: bool,
    /// Its units of all budgets that were looked at.
    pub(crate) held: u64,
    /// How many of these budgets it holds units of.
    pub(crate) budgets: u32,
}

/// Returns the processes of some budgets: the ended first, then those that hold most.
pub(crate) fn processes<'a>(budgets: impl Iterator<Item = &'a Budget>) -> Vec<Process> {
    let mut by_slot: BTreeMap<u32, Process> = BTreeMap::new();
    for BudgetParticipant { slot, pid, held, is_alive, .. } in
        budgets.flat_map(|budget| &budget.participants).copied()
    {
        let new = Process { slot, pid, is_alive, held: 0, budgets: 0 };
        let process = by_slot.entry(slot).or_insert(new);
        if process.pid != pid {
            // The slot has a new participant since the look at the budget before.
            *process = new;
        }
        process.is_alive &= is_alive;
        process.held = process.held.saturating_add(held);
        process.budgets += u32::from(held > 0);
    }
    let mut processes: Vec<_> = by_slot.into_values().collect();
    processes.sort_by_key(|it| (it.is_alive, std::cmp::Reverse(it.held), it.slot));
    processes
}
