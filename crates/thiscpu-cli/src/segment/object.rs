//! The values of a segment's objects, as lines and as JSON.

use serde_json::{Value, json};
use thiscpu::__internal::capi::DynCountersView;
use thiscpu::{
    Bounds, BudgetParticipant, BudgetState, ObjectKind, SegmentError, SegmentObject, SegmentView,
};

/// The contents of an object.
pub(super) enum Values {
    Counters(Vec<Bounds>),
    Budget(BudgetState, Vec<BudgetParticipant>),
    Unknown,
}

/// Reads the contents of an object.
pub(super) fn values(view: &SegmentView, object: &SegmentObject) -> Result<Values, SegmentError> {
    let name = object.name();
    Ok(match object.kind() {
        ObjectKind::Counter => Values::Counters(vec![view.counter(name)?.bounds()]),
        ObjectKind::Counters(len) => {
            Values::Counters(DynCountersView::open(view, name, len as usize)?.bounds())
        }
        ObjectKind::Budget => {
            let budget = view.budget(name)?;
            // The state first: units that come back meanwhile are not said to be held by the ended.
            let state = budget.state();
            Values::Budget(state, budget.participants())
        }
        _ => Values::Unknown,
    })
}

/// Returns the name of a kind.
pub(super) fn kind_name(kind: ObjectKind) -> String {
    match kind {
        ObjectKind::Counter => "counter".to_owned(),
        ObjectKind::Counters(len) => format!("{len} counters"),
        ObjectKind::Budget => "budget".to_owned(),
        ObjectKind::Unknown { number, .. } => format!("kind {number}"),
        _ => "other".to_owned(),
    }
}

/// Returns the contents of an object in words.
pub(super) fn to_text(values: &Values) -> String {
    match values {
        Values::Counters(values) => values.iter().map(in_words).collect::<Vec<_>>().join(", "),
        Values::Budget(state, users) => budget_in_words(state, held_by_ended(users)),
        Values::Unknown => String::new(),
    }
}

/// Returns the units that processes hold which have ended.
fn held_by_ended(users: &[BudgetParticipant]) -> u64 {
    users.iter().filter(|user| !user.is_alive).map(|user| user.held).sum()
}

fn budget_in_words(state: &BudgetState, held_by_ended: u64) -> String {
    let held = (state.limit as i64 - state.free).max(0);
    let about = if state.is_exact { "" } else { "at most " };
    let note = match state {
        _ if state.is_closed => ", closed",
        _ if state.is_queued => ", somebody waits",
        _ => "",
    };
    // The state was read before the participants, so they may hold more units than it says.
    let ended = match held_by_ended.min(held as u64) {
        0 => String::new(),
        units => format!(", {units} of them by ended processes"),
    };
    format!("{about}{held} of {} held{ended}{note}", state.limit)
}

/// Returns a value in words: exact, bounds, or unknown.
fn in_words(bounds: &Bounds) -> String {
    match (bounds.low, bounds.high) {
        (i64::MIN, i64::MAX) => "unknown".to_owned(),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low} to {high}"),
    }
}

/// Returns an object with its values.
pub(super) fn to_json(object: &SegmentObject, values: &Values) -> Value {
    let counter = |bounds: &Bounds| {
        let Bounds { low, high, .. } = *bounds;
        json!({ "low": low, "high": high, "exact": low == high })
    };
    let participant = |user: &BudgetParticipant| {
        let BudgetParticipant { slot, pid, held, is_alive, .. } = *user;
        json!({ "slot": slot, "pid": pid, "held": held, "alive": is_alive })
    };
    let values: Vec<_> = match values {
        Values::Counters(values) => values.iter().map(counter).collect(),
        Values::Budget(state, users) => vec![json!({
            "limit": state.limit,
            "free": state.free,
            "exact": state.is_exact,
            "queued": state.is_queued,
            "closed": state.is_closed,
            "held_by_ended": held_by_ended(users),
            "participants": users.iter().map(participant).collect::<Vec<_>>(),
        })],
        Values::Unknown => Vec::new(),
    };
    let (number, count) = match object.kind() {
        ObjectKind::Counter => ("counter".to_owned(), 1),
        ObjectKind::Counters(len) => ("counters".to_owned(), len),
        ObjectKind::Budget => ("budget".to_owned(), 1),
        ObjectKind::Unknown { number, count } => (number.to_string(), count),
        _ => ("other".to_owned(), 0),
    };
    json!({ "name": object.name(), "kind": number, "count": count, "values": values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_processes_hold_at_most_what_is_held() {
        let path = std::env::temp_dir().join(format!("thiscpu-words-{}", std::process::id()));
        let segment = thiscpu::Segment::create(&path).unwrap();
        let budget = segment.budget("budget", 100).unwrap();
        let view = SegmentView::open(&path);
        std::fs::remove_file(&path).unwrap();
        let state = || view.as_ref().unwrap().budget("budget").unwrap().state();
        assert_eq!(budget.available(), 100);
        assert_eq!(budget_in_words(&state(), 30), "0 of 100 held");
        budget.try_acquire(20).unwrap();
        assert_eq!(budget.available(), 80);
        let ended = |units| budget_in_words(&state(), units);
        assert_eq!(ended(30), "20 of 100 held, 20 of them by ended processes");
        assert_eq!(ended(7), "20 of 100 held, 7 of them by ended processes");
    }
}
