//! The health of a segment: its room, and its damage.

use crate::numbers::{bytes, percent};
use crate::sample::Sample;

/// Returns the room that is in use, and all that is wrong.
pub(crate) fn words(sample: &Sample) -> String {
    let room = room(sample, usize::MAX);
    damage(sample).map_or(room.clone(), |damage| format!("{damage}; {room}"))
}

/// Returns the room that is in use, in a line of some columns if that is possible.
pub(crate) fn room(sample: &Sample, width: usize) -> String {
    let usage = &sample.usage;
    let records = percent(usage.record_bytes_used, usage.record_bytes);
    let in_lane = percent(usage.lane_bytes_used, usage.lane_bytes);
    let objects = several(sample.series.len() + sample.budgets.len(), "object");
    let long = format!(
        "{objects} of {}, records {records} of {}, {} {in_lane} of {}",
        usage.index_entries,
        bytes(usage.record_bytes),
        several(usage.lanes as usize, "lane"),
        bytes(usage.lane_bytes),
    );
    match long.len() <= width {
        true => long,
        false => format!("{objects}, room used {records}, {in_lane}"),
    }
}

/// Returns what is wrong with a segment.
pub(crate) fn damage(sample: &Sample) -> Option<String> {
    match (sample.damaged, sample.unknown) {
        (0, 0) => None,
        (0, unknown) => Some(format!("{} of a newer version", several(unknown, "object"))),
        (1, _) => Some("1 record is damaged".to_owned()),
        (damaged, _) => Some(format!("{damaged} records are damaged")),
    }
}

/// Returns a number of things, in the form that fits the number.
fn several(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
