//! A look as tables of plain text.

use thiscpu_program::table::Table;
use thiscpu_program::text;

use crate::cells;
use crate::health;
use crate::sample::{Process, processes};
use crate::session::Session;

/// Returns the first `rows_max` counters and budgets, and the health of the segment.
pub(super) fn to_text(session: &mut Session, rows_max: usize) -> String {
    let mut counters = Table::new(["VALUE", "RATE/S", "COUNTER"]);
    for row in session.rows(0, rows_max) {
        let Some((series, counter, reading)) = session.sample.row(row) else { continue };
        let name = text::escaped(&series.counter_name(counter));
        counters.row([cells::value(reading), cells::rate(reading), name]);
    }
    let shown = session.budgets(0, rows_max);
    session.participants(&shown);
    let shown = shown.iter().filter_map(|&at| session.sample.budgets.get(at as usize));
    let mut budgets = Table::new(["LIMIT", "HELD", "FREE", "WAITING", "BUDGET"]);
    for budget in shown.clone() {
        let cells = cells::budget(budget);
        let name = text::escaped(&budget.name);
        budgets.row([cells.limit, cells.held, cells.free, cells.waiting, name]);
    }
    let mut users = Table::new(["PROCESS", "SLOT", "HELD", "BUDGETS", "STATE"]);
    for Process { slot, pid, is_alive, held, budgets } in
        processes(shown).into_iter().take(rows_max)
    {
        let state = if is_alive { "alive" } else { "ended" };
        let [pid, slot, budgets] = [pid, slot, budgets].map(|number| number.to_string());
        users.row([pid, slot, held.to_string(), budgets, state.to_owned()]);
    }
    let mut text = format!("segment {}: {}\n", session.name(), health::words(&session.sample));
    if let Some(why) = &session.stale {
        text += &format!("stale: {why}\n");
    }
    if !counters.is_empty() {
        text += &format!("\n{counters}");
    }
    if !budgets.is_empty() {
        text += &format!("\n{budgets}");
    }
    if !users.is_empty() {
        text += &format!("\n{users}");
    }
    text
}
