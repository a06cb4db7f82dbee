//! The screen: a header, three panes, and a line of keys.

mod panes;
mod style;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use thiscpu_program::text;

use crate::health;
use crate::sample::processes;
use crate::session::Session;
use crate::ui::{Pane, Ui};
pub(crate) use style::Style;

/// The most budgets whose processes are looked at although they are not visible.
const BUDGETS_MAX: usize = 64;
/// The rows of a pane that has not the focus, if the terminal is high enough.
const UNFOCUSED_ROWS: usize = 3;

const HELP: &str = "\
q, Ctrl-C    quit
p, space     pause: values stay as they are
Tab          next pane: counters, budgets, processes
up, down, j, k, PgUp, PgDn, Home, End    scroll
s            next order: name, value, rate
r            reverse the order
/            filter by a part of the name; Enter keeps the filter, Esc drops it
Ctrl-L       draw everything again
Ctrl-Z       suspend

~       about: the counter changed meanwhile, or units are lent to CPUs
?       no bounds are known
ended   a process that was killed or has ended; its units come back
        at the next call on the budget that would refuse or wait

Any key ends this help.";

/// Draws everything. Reads values that have become visible.
pub(crate) fn draw(frame: &mut Frame<'_>, session: &mut Session, ui: &mut Ui, style: Style) {
    let area = frame.area();
    let width = usize::from(area.width);
    let mut header = header(session, width, style);
    let height = usize::from(area.height);
    // Values matter more than the words above them.
    header.truncate(height.saturating_sub(2).max(1));
    let rest = height.saturating_sub(header.len() + 1);
    let mut lines = header;
    let head = lines.len();
    match ui.shows_help {
        true => lines.extend(HELP.lines().map(Line::raw)),
        false => lines.extend(body(session, ui, style, [width, rest])),
    }
    lines.truncate(head + rest);
    let above = Rect { height: area.height.saturating_sub(1), ..area };
    frame.render_widget(Paragraph::new(lines), above);
    let below = Rect { y: area.bottom().saturating_sub(1), height: area.height.min(1), ..area };
    frame.render_widget(Paragraph::new(footer(session, ui, style)), below);
}

fn header(session: &Session, width: usize, style: Style) -> Vec<Line<'static>> {
    let name = session.name();
    // The end of a long path says more than its beginning.
    let room = width.saturating_sub("thiscpu-top ".len());
    let skipped = name.chars().count().saturating_sub(room);
    let name = match skipped {
        0 => name.to_owned(),
        _ => format!("..{}", name.chars().skip(skipped + 2).collect::<String>()),
    };
    let mut lines = vec![Line::styled(format!("thiscpu-top {name}"), style.title())];
    if let Some(damage) = health::damage(&session.sample) {
        lines.push(Line::styled(damage, style.alarm()));
    }
    if let Some(why) = &session.stale {
        lines.push(Line::styled(format!("STALE: {why}; values are old"), style.alarm()));
    } else if session.is_replaced() {
        let text = "another segment has taken this name, and is shown now";
        lines.push(Line::styled(text, style.alarm()));
    }
    if session.is_paused {
        lines.push(Line::styled("PAUSED: p goes on", style.alarm()));
    }
    lines.push(Line::raw(health::room(&session.sample, width)));
    lines
}

fn footer(session: &Session, ui: &Ui, style: Style) -> Line<'static> {
    let filter = text::escaped(&session.choice.filter);
    if ui.filter_before.is_some() {
        return Line::styled(format!("filter: {filter}_  (Enter, Esc)"), style.title());
    }
    let sort = session.choice.sort.name();
    let reverse = if session.choice.is_reversed { " reversed" } else { "" };
    let filter = if filter.is_empty() { String::new() } else { format!("={filter}") };
    Line::raw(format!(
        "q quit  ? help  s sort={sort}{reverse}  / filter{filter}  p pause  Tab pane"
    ))
}

/// Returns the lines of all panes.
fn body(
    session: &mut Session,
    ui: &mut Ui,
    style: Style,
    [width, height]: [usize; 2],
) -> Vec<Line<'static>> {
    let budgets_len = session.matching.budgets.len();
    if budgets_len <= BUDGETS_MAX {
        session.budgets(0, budgets_len);
        session.participants(&session.matching.budgets.clone());
    }
    let first = ui.firsts[Pane::Budgets as usize];
    let visible = session.budgets(first, height);
    session.participants(&visible);
    let known: Vec<_> = match budgets_len <= BUDGETS_MAX {
        true => session.matching.budgets.clone(),
        false => visible,
    };
    let of = known.iter().filter_map(|&budget| session.sample.budgets.get(budget as usize));
    let processes = processes(of);
    let lens = [session.matching.rows.len(), budgets_len, processes.len()];
    ui.lens = lens;
    let heights = heights(lens, ui.focus, height);
    let mut lines = Vec::new();
    for (pane, (len, rows)) in Pane::ALL.into_iter().zip(lens.into_iter().zip(heights)) {
        let Some(rows) = rows else { continue };
        let first = ui.firsts[pane as usize].min(len.saturating_sub(rows));
        ui.firsts[pane as usize] = first;
        if pane == ui.focus {
            ui.page = rows;
        }
        let range = first..len.min(first + rows);
        let shown = match pane {
            Pane::Counters => panes::counters(session, &range, width),
            Pane::Budgets => panes::budgets(session, &range, width, style),
            Pane::Processes => panes::processes(&processes[range.clone()], width, style),
        };
        let part = format!(" ({}-{} of {len})", range.start + usize::from(len > 0), range.end);
        let label = format!("{:width$}", format!("{}{part}", shown.label));
        lines.push(Line::styled(label, style.label(pane == ui.focus)));
        lines.extend(shown.lines);
    }
    lines
}

/// Returns the rows of each pane below its label; a pane without rows is not shown.
///
/// The focused one gets the room that the others leave. Without room for all, it is shown alone.
fn heights(lens: [usize; 3], focus: Pane, height: usize) -> [Option<usize>; 3] {
    let is_shown = |pane: Pane| pane == focus || lens[pane as usize] > 0;
    let least = |pane: Pane| match is_shown(pane) {
        true if pane == focus => 1 + UNFOCUSED_ROWS,
        true => 1 + lens[pane as usize].min(UNFOCUSED_ROWS),
        false => 0,
    };
    if height < Pane::ALL.map(least).iter().sum() {
        return Pane::ALL.map(|pane| (pane == focus).then(|| height.saturating_sub(1)));
    }
    let share = (height / 4).max(1 + UNFOCUSED_ROWS) - 1;
    let unfocused = |pane: Pane| lens[pane as usize].min(share);
    let others: usize = Pane::ALL
        .into_iter()
        .filter(|&pane| pane != focus && is_shown(pane))
        .map(|pane| 1 + unfocused(pane))
        .sum();
    Pane::ALL.map(|pane| match pane == focus {
        true => Some(height.saturating_sub(others + 1)),
        false => is_shown(pane).then(|| unfocused(pane)),
    })
}

#[cfg(test)]
mod tests;
