//! The values of a segment's objects, as lines and as JSON.

use serde_json::{Value, json};
use thiscpu::__internal::capi::DynCountersView;
use thiscpu::{Bounds, ObjectKind, SegmentError, SegmentObject, SegmentView};

/// Reads the values of an object's counters; there are none if it has no counters.
pub(super) fn values(
    view: &SegmentView,
    object: &SegmentObject,
) -> Result<Vec<Bounds>, SegmentError> {
    match object.kind() {
        ObjectKind::Counter => Ok(vec![view.counter(object.name())?.bounds()]),
        ObjectKind::Counters(len) => {
            Ok(DynCountersView::open(view, object.name(), len as usize)?.bounds())
        }
        _ => Ok(Vec::new()),
    }
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

/// Returns a value in words: exact, bounds, or unknown.
pub(super) fn to_text(bounds: &Bounds) -> String {
    match (bounds.low, bounds.high) {
        (i64::MIN, i64::MAX) => "unknown".to_owned(),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low} to {high}"),
    }
}

/// Returns an object with its values.
pub(super) fn to_json(object: &SegmentObject, values: &[Bounds]) -> Value {
    let values: Vec<_> = values
        .iter()
        .map(|&Bounds { low, high, .. }| json!({ "low": low, "high": high, "exact": low == high }))
        .collect();
    let (number, count) = match object.kind() {
        ObjectKind::Counter => ("counter".to_owned(), 1),
        ObjectKind::Counters(len) => ("counters".to_owned(), len),
        ObjectKind::Budget => ("budget".to_owned(), 1),
        ObjectKind::Unknown { number, count } => (number.to_string(), count),
        _ => ("other".to_owned(), 0),
    };
    json!({ "name": object.name(), "kind": number, "count": count, "values": values })
}
