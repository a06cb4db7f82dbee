//! A look as tables of plain text.

use thiscpu_program::table::Table;
use thiscpu_program::text;

use crate::cells;
use crate::health;
use crate::session::Session;

/// Returns the first `rows_max` counters and budgets, and the health of the segment.
pub(super) fn to_text(session: &mut Session, rows_max: usize) -> String {
    let mut counters = Table::new(["VALUE", "RATE/S", "COUNTER"]);
    for row in session.rows(0, rows_max) {
        let Some((series, counter, reading)) = session.sample.row(row) else { continue };
        let name = text::escaped(&series.counter_name(counter));
        counters.row([cells::value(reading), cells::rate(reading), name]);
    }
    let mut budgets = Table::new(["LIMIT", "HELD", "FREE", "WAITING", "BUDGET"]);
    for budget in session.budgets(0, rows_max) {
        let budget = &session.sample.budgets[budget as usize];
        let cells = cells::budget(budget.state.as_ref());
        let name = text::escaped(&budget.name);
        budgets.row([cells.limit, cells.held, cells.free, cells.waiting, name]);
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
    text
}
