//! Looks that are printed, for scripts and for terminals that have no cursor.

mod json;
mod table;

use std::thread;
use std::time::Duration;

use anyhow::Result;
use thiscpu_program::output;

use crate::session::Session;

/// The form of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Tables with so many rows at most.
    Text(usize),
    /// One object, in one line.
    Json,
}

/// Prints looks until there is no reader, and returns whether the last one is bad.
///
/// A look is bad if it is stale or tells damage. Prints at most `count` of them. The first one
/// comes after an interval, because rates need two looks.
pub(crate) fn print(
    session: &mut Session,
    form: Form,
    count: Option<u64>,
    interval: Duration,
) -> Result<bool> {
    session.begin_tick();
    if !interval.is_zero() {
        read(session, form);
    }
    let mut printed = 0;
    while count.is_none_or(|count| printed < count) {
        thread::sleep(interval);
        if !interval.is_zero() {
            session.begin_tick();
        }
        let text = text_of(session, form);
        let is_first = printed == 0;
        let between = if is_first || form == Form::Json { "" } else { "\n" };
        if !output::print(&format!("{between}{text}"))? {
            break;
        }
        printed += 1;
    }
    Ok(session.stale.is_some() || session.sample.damaged > 0)
}

/// Reads the values of a first look, from which rates are counted.
fn read(session: &mut Session, form: Form) {
    match form {
        Form::Text(rows_max) => drop(table::to_text(session, rows_max)),
        Form::Json => json::read(session),
    }
}

fn text_of(session: &mut Session, form: Form) -> String {
    match form {
        Form::Text(rows_max) => table::to_text(session, rows_max),
        Form::Json => format!("{}\n", json::to_json(session)),
    }
}
