//! How a segment is: its room, and its damage.

use thiscpu::__internal::inspect::Usage;

use crate::numbers::{bytes, percent};
use crate::sample::Sample;

/// Returns the room that is in use, and all that is wrong.
pub(crate) fn words(sample: &Sample) -> String {
    let Usage { record_bytes_used: used, record_bytes, lanes, lane_bytes_used, .. } = sample.usage;
    let mut text = format!(
        "records {} of {}, {lanes} lanes {} of {}",
        percent(used, record_bytes),
        bytes(record_bytes),
        percent(lane_bytes_used, sample.usage.lane_bytes),
        bytes(sample.usage.lane_bytes),
    );
    if let Some(damage) = damage(sample) {
        text = format!("{damage}; {text}");
    }
    text
}

/// Returns what is wrong with a segment.
pub(crate) fn damage(sample: &Sample) -> Option<String> {
    match (sample.damaged, sample.unknown) {
        (0, 0) => None,
        (0, unknown) => Some(format!("{unknown} objects of a newer version")),
        (damaged, _) => Some(format!("{damaged} records are damaged")),
    }
}
