//! `thiscpu segment check`: whether all of a segment fits together.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use thiscpu::__internal::inspect::{self, Checked, Fault};

use crate::{FAILED, output};

/// Runs the subcommand.
pub(super) fn main(path: &Path) -> Result<ExitCode> {
    let view = match super::open("check", path) {
        Ok(view) => view,
        Err(status) => return Ok(status),
    };
    let checked = match inspect::check(&view) {
        Ok(checked) => checked,
        Err(error) => return Ok(super::refuse("check", path, &error)),
    };
    let path = super::text_of(path);
    for Fault { part, fault } in &checked.faults {
        output::note(&format!("{path}: {part}: {fault}"));
    }
    if !checked.faults.is_empty() {
        let faults = super::counted(checked.faults.len(), "fault", "faults");
        output::note(&format!(
            "{path} is damaged: {faults} found; remove it after all its processes have ended"
        ));
        return Ok(ExitCode::from(FAILED));
    }
    output::print(&to_text(&path, &checked))?;
    Ok(ExitCode::SUCCESS)
}

/// Describes the parts that were checked, and the result.
fn to_text(path: &str, checked: &Checked) -> String {
    let objects = super::counted(checked.objects, "object", "objects");
    let mut text = format!(
        "{path}: no damage found
  header   its sizes fit together, and fit the length of the file
  index    each entry in use leads to a record, and a search for its name finds it
  records  {objects}: valid names and kinds, places inside the file; no two share a name or bytes
  values   not checked: a process that can write may give them any value
"
    );
    match checked.unused_bytes {
        None => text += "  unused   unknown: objects have a kind that this version does not know\n",
        Some([0, 0]) => text += "  unused   no bytes\n",
        Some([records, lanes]) => {
            let _ = writeln!(
                text,
                "  unused   {records} bytes of records and {lanes} of each lane; harmless: skipped \
                 so that a budget begins at a cache line, or left by a process that ended while it \
                 made an object"
            );
        }
    }
    text
}
