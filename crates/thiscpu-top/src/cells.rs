//! The values of rows in words.

use crate::numbers;
use crate::sample::{Budget, Reading};

/// Returns a value: exact, about, or unknown.
pub(crate) fn value(reading: Option<&Reading>) -> String {
    match reading {
        None => "-".to_owned(),
        Some(reading) if !reading.is_known() => "?".to_owned(),
        Some(reading) if reading.is_exact() => reading.bounds.low.to_string(),
        Some(reading) => format!("~{}", reading.bounds.estimate),
    }
}

/// Returns a value in at most eight characters.
pub(crate) fn short_value(reading: Option<&Reading>) -> String {
    let whole = value(reading);
    match reading {
        Some(reading) if whole.len() > 8 => {
            let about = if reading.is_exact() { "" } else { "~" };
            format!("{about}{}", numbers::compact(reading.bounds.estimate as f64))
        }
        _ => whole,
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

/// Returns the state of a budget.
///
/// Free units may be lent to CPUs. Then the units that processes hold tell more than the pool, but
/// they are counted one process after the other.
pub(crate) fn budget(budget: &Budget) -> BudgetCells {
    let Some(state) = &budget.state else {
        let unknown = || "-".to_owned();
        let (limit, held, free, waiting) = (unknown(), unknown(), unknown(), unknown());
        return BudgetCells { limit, held, free, waiting };
    };
    let about = if state.is_exact { "" } else { "~" };
    let number = |number: i64| match number.unsigned_abs() < 10_000_000 {
        true => number.to_string(),
        false => numbers::compact(number as f64),
    };
    let held = budget.held();
    let waiting = match state {
        _ if state.is_closed => "closed",
        _ if state.is_queued => "yes",
        _ => "no",
    };
    BudgetCells {
        limit: number(state.limit as i64),
        held: format!("{about}{}", number(held)),
        free: format!("{about}{}", number(budget.free())),
        waiting: waiting.to_owned(),
    }
}
