//! `thiscpu segment check`: whether all of a segment fits together.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use thiscpu::__internal::inspect::{self, Checked, Fault};

use crate::{FAILED, output};

/// Runs the subcommand.
pub(super) fn main(path: &Path) -> Result<ExitCode> {
    let view = match super::open(path) {
        Ok(view) => view,
        Err(status) => return Ok(status),
    };
    let checked = match inspect::check(&view) {
        Ok(checked) => checked,
        Err(error) => return Ok(super::refuse(&error)),
    };
    let path = super::text_of(path);
    for Fault { part, fault } in &checked.faults {
        output::note(&format!(
            "{path}: {part}: {fault}; let all processes end, and create the segment again"
        ));
    }
    if !checked.faults.is_empty() {
        return Ok(ExitCode::from(FAILED));
    }
    output::print(&to_text(&path, &checked))?;
    Ok(ExitCode::SUCCESS)
}

fn to_text(path: &str, checked: &Checked) -> String {
    let mut text = format!("{path}: {} objects, no damage\n", checked.objects);
    if let Some([records, lanes]) = checked.unused_bytes.filter(|unused| *unused != [0; 2]) {
        let _ = writeln!(
            text,
            "{path}: {records} bytes of records and {lanes} of each lane belong to no object: \
             a process ended while it made one, two made one at once, or a budget begins at a \
             cache line; nothing to do"
        );
    }
    text
}
