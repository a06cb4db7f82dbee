//! A look as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::sample::{Budget, Process, Reading, Series, processes};
use crate::session::Session;

/// Reads all objects that fit the filter.
pub(super) fn read(session: &mut Session) {
    if session.stale.is_none() {
        let budgets = session.matching.budgets.clone();
        session.sample.read_rows(session.matching.rows.iter().copied());
        session.participants(&budgets);
    }
}

/// Returns all objects that fit the filter by their names, and the health of the segment.
pub(super) fn to_json(session: &mut Session) -> Value {
    read(session);
    let (sample, rows, budgets) =
        (&session.sample, &session.matching.rows, &session.matching.budgets);
    let mut in_group = None;
    let mut objects = Vec::new();
    for &row in rows {
        let series = sample.rows[row as usize].series;
        // A group has all its counters in one place.
        if in_group.replace(series) != Some(series) {
            objects.push(series_to_json(&sample.series[series as usize]));
        }
    }
    objects.extend(budgets.iter().map(|&at| budget_to_json(&sample.budgets[at as usize])));
    let of = budgets.iter().map(|&at| &sample.budgets[at as usize]);
    let processes: Vec<_> = processes(of).iter().map(process_to_json).collect();
    let usage = &sample.usage;
    // Before 1970 only if the clock is wrong.
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "time": time.as_secs_f64(),
        "segment": session.path().to_string_lossy(),
        "stale": session.stale,
        "format": usage.format,
        "index_entries": usage.index_entries,
        "record_bytes": usage.record_bytes,
        "record_bytes_used": usage.record_bytes_used,
        "lanes": usage.lanes,
        "lane_bytes": usage.lane_bytes,
        "lane_bytes_used": usage.lane_bytes_used,
        "damaged_records": sample.damaged,
        "unknown_objects": sample.unknown,
        "objects": objects,
        "processes": processes,
    })
}

fn series_to_json(series: &Series) -> Value {
    let values: Vec<_> = (0..series.len())
        .map(|counter| series.reading(counter).map_or(Value::Null, reading_to_json))
        .collect();
    let kind = if series.len() == 1 { "counter" } else { "counters" };
    json!({ "name": series.name, "kind": kind, "count": series.len(), "values": values })
}

fn reading_to_json(reading: &Reading) -> Value {
    let (low, high) = (reading.bounds.low, reading.bounds.high);
    json!({ "low": low, "high": high, "exact": reading.is_exact(), "rate": reading.rate })
}

fn budget_to_json(budget: &Budget) -> Value {
    let state = budget.state.as_ref().map_or(Value::Null, |state| {
        json!({
            "limit": state.limit,
            "held": budget.held(),
            "free": budget.free(),
            "pool": state.free,
            "exact": state.is_exact,
            "queued": state.is_queued,
            "closed": state.is_closed,
        })
    });
    let holders = budget
        .holders()
        .into_iter()
        .map(|it| json!({ "slot": it.slot, "pid": it.pid, "held": it.held, "alive": it.is_alive }));
    let holders: Vec<_> = holders.collect();
    json!({
        "name": budget.name,
        "kind": "budget",
        "count": 1,
        "values": [state],
        "holders": holders,
    })
}

fn process_to_json(process: &Process) -> Value {
    let Process { slot, pid, is_alive, held, budgets } = *process;
    json!({ "slot": slot, "pid": pid, "alive": is_alive, "held": held, "budgets": budgets })
}
