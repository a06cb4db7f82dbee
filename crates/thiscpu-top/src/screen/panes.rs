//! The rows of each pane, as wide as the terminal allows.

use std::ops::Range;

use ratatui::text::Line;
use thiscpu_program::text;

use super::Style;
use crate::cells;
use crate::sample::{Budget, Process};
use crate::session::Session;

/// The rows of a pane that are visible, below their label.
pub(super) struct Shown {
    pub(super) label: String,
    pub(super) lines: Vec<Line<'static>>,
}

/// The columns from which values are shown in full.
const WIDE: usize = 60;
/// The columns from which the holders of a budget are shown beside it.
const WITH_HOLDERS: usize = 70;
/// The most columns of a budget's name beside its holders.
const NAME_MAX: usize = 24;

/// Returns counters with their values and rates.
pub(super) fn counters(session: &mut Session, range: &Range<usize>, width: usize) -> Shown {
    let is_wide = width >= WIDE;
    let line = |value: &str, rate: &str, name: &str| match is_wide {
        true => format!("{value:>20} {rate:>8}  {name}"),
        false => format!("{value:>8} {rate:>7} {name}"),
    };
    let rows = session.rows(range.start, range.len());
    let lines = rows.into_iter().filter_map(|row| {
        let (series, counter, reading) = session.sample.row(row)?;
        let value = if is_wide { cells::value(reading) } else { cells::short_value(reading) };
        let name = text::escaped(&series.counter_name(counter));
        Some(Line::raw(line(&value, &cells::rate(reading), &name)))
    });
    Shown { lines: lines.collect(), label: line("VALUE", "RATE/S", "COUNTER") }
}

/// Returns budgets with their limits, and the processes that hold their units.
pub(super) fn budgets(
    session: &mut Session,
    range: &Range<usize>,
    width: usize,
    style: Style,
) -> Shown {
    let budgets = session.budgets(range.start, range.len());
    session.participants(&budgets);
    let budgets: Vec<_> =
        budgets.into_iter().filter_map(|at| session.sample.budgets.get(at as usize)).collect();
    let lens = budgets.iter().map(|budget| budget.name.chars().count());
    let name_width = lens.max().unwrap_or(0).clamp("BUDGET".len(), NAME_MAX);
    let line = |[limit, held, free, waiting]: [&str; 4], name: &str, holders: &str| {
        if width < WITH_HOLDERS {
            return format!("{held:>7} {limit:>7} {waiting:>7} {name}");
        }
        let name: String = match holders.is_empty() {
            true => name.to_owned(),
            false => name.chars().take(name_width).collect(),
        };
        let name = format!("{name:name_width$}");
        format!("{limit:>8} {held:>8} {free:>8} {waiting:>7}  {name}  {holders}")
    };
    let lines = budgets.iter().map(|budget| {
        let cells = cells::budget(budget);
        let values = [&*cells.limit, &cells.held, &cells.free, &cells.waiting];
        let text = line(values, &text::escaped(&budget.name), &holders(budget));
        Line::styled(text, if budget.is_full() { style.full() } else { Default::default() })
    });
    let lines = lines.collect();
    Shown { lines, label: line(["LIMIT", "HELD", "FREE", "WAITING"], "BUDGET", "PID:HELD") }
}

/// Returns the processes that hold units of a budget, and how many each.
fn holders(budget: &Budget) -> String {
    let holders = budget.holders().into_iter().map(|holder| {
        let ended = if holder.is_alive { "" } else { " ended" };
        format!("{}:{}{ended}", holder.pid, holder.held)
    });
    holders.collect::<Vec<_>>().join(", ")
}

/// Returns processes with the units that they hold of all budgets.
pub(super) fn processes(processes: &[Process], width: usize, style: Style) -> Shown {
    let line = |[pid, slot, state, held, budgets]: [&str; 5]| match width >= WIDE {
        true => format!("{pid:>10} {slot:>5}  {state:5} {held:>12} {budgets:>8}"),
        false => format!("{pid:>10} {state:5} {held:>12}"),
    };
    let lines = processes.iter().map(|process| {
        let Process { slot, pid, is_alive, held, budgets } = *process;
        let state = if is_alive { "alive" } else { "ended" };
        let [pid, slot, budgets] = [pid, slot, budgets].map(|number| number.to_string());
        let text = line([&pid, &slot, state, &held.to_string(), &budgets]);
        Line::styled(text, if is_alive { Default::default() } else { style.alarm() })
    });
    let label = line(["PROCESS", "SLOT", "STATE", "HELD", "BUDGETS"]);
    Shown { lines: lines.collect(), label }
}
