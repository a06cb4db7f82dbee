//! The values of rows in words.

use thiscpu::BudgetState;

use crate::numbers;
use crate::sample::{Reading, held};

/// Returns a value: exact, about, or unknown.
pub(crate) fn value(reading: Option<&Reading>) -> String {
    match reading {
        None => "-".to_owned(),
        Some(reading) if !reading.is_known() => "?".to_owned(),
        Some(reading) if reading.is_exact() => reading.bounds.low.to_string(),
        Some(reading) => format!("~{}", reading.bounds.estimate),
    }
}

/// Returns a change in a second.
pub(crate) fn rate(reading: Option<&Reading>) -> String {
    let rate = reading.and_then(|reading| reading.rate);
    rate.map_or("-".to_owned(), numbers::compact)
}

/// The state of a budget in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct BudgetCells {
    pub(crate) limit: String,
    pub(crate) held: String,
    pub(crate) free: String,
    pub(crate) waiting: String,
}

/// Returns the state of a budget: unless it is exact, units may be free that seem to be held.
pub(crate) fn budget(state: Option<&BudgetState>) -> BudgetCells {
    let Some(state) = state else {
        let unknown = || "-".to_owned();
        let (limit, held, free, waiting) = (unknown(), unknown(), unknown(), unknown());
        return BudgetCells { limit, held, free, waiting };
    };
    let [most, least] = if state.is_exact { [""; 2] } else { ["<=", ">="] };
    let waiting = match state {
        _ if state.is_closed => "closed",
        _ if state.is_queued => "yes",
        _ => "no",
    };
    BudgetCells {
        limit: state.limit.to_string(),
        held: format!("{most}{}", held(state)),
        free: format!("{least}{}", state.free),
        waiting: waiting.to_owned(),
    }
}
