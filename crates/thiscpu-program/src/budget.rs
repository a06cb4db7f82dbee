//! The units of a budget that processes hold, as far as a reader can tell.

use thiscpu::{BudgetParticipant, BudgetState};

/// Returns the units that are not in the pool: the most that processes can hold.
pub fn taken(state: &BudgetState) -> i64 {
    (state.limit as i64).saturating_sub(state.free).max(0)
}

/// Returns the units that are held, by a state and the participants that were read after it.
///
/// Unless the state is exact, units that are free may be lent to CPUs. Then this is the sum of what
/// the participants hold, and [`taken`] at most.
pub fn held(state: &BudgetState, participants: &[BudgetParticipant]) -> i64 {
    let most = taken(state);
    match state.is_exact {
        true => most,
        false => {
            let held: u64 = participants.iter().map(|it| it.held).sum();
            most.min(i64::try_from(held).unwrap_or(i64::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thiscpu::{Segment, SegmentView};

    #[test]
    fn lent_units_are_free() {
        let segment = Segment::anonymous().unwrap();
        let budget = segment.budget("connections", 1000).unwrap();
        budget.try_acquire(10).unwrap();
        let file = segment.as_fd().unwrap().try_clone_to_owned().unwrap();
        let view = SegmentView::from_fd(file).unwrap().budget("connections").unwrap();
        let (state, participants) = (view.state(), view.participants());
        assert!(!state.is_exact && taken(&state) > 10, "{state:?}");
        assert_eq!(held(&state, &participants), 10);
        assert_eq!(budget.available(), 990);
        let state = view.state();
        assert_eq!((taken(&state), held(&state, &[])), (10, 10));
    }
}
