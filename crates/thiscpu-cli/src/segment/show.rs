//! `thiscpu segment show`: sizes, processes and values.

use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use thiscpu::__internal::inspect::{self, Usage};
use thiscpu::{SegmentError, SegmentObject, SegmentView};

use super::object::{self, Values};
use super::registry::Registry;
use super::users::Users;
use crate::{FAILED, output};

/// An object with its values, or the reason why it has none.
type Shown = Result<(SegmentObject, Values), SegmentError>;

/// Runs the subcommand.
pub(super) fn main(path: &Path, json: bool) -> Result<ExitCode> {
    let view = match super::open("show", path) {
        Ok(view) => view,
        Err(status) => return Ok(status),
    };
    let file = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let objects: Vec<Shown> = view.objects().map(|object| with_values(&view, object)).collect();
    let (usage, users) = (inspect::usage(&view), Users::of(&file));
    let registry = usage.registry.map(|usage| Registry::of(&view, usage)).transpose()?;
    output::print(&match json {
        true => {
            let mut shown = to_json(path, &file, &usage, users.as_ref(), &objects);
            shown["registry"] = registry.as_ref().map_or(Value::Null, Registry::to_json);
            format!("{shown:#}\n")
        }
        false => {
            let mut text = to_text(path, &file, &usage, users.as_ref(), &objects);
            if let Some(registry) = &registry {
                let _ = writeln!(text, "{:<10} {}", "registry", registry.describe());
                registry.write_lines(&mut text);
            }
            text
        }
    })?;
    let is_damaged =
        objects.iter().any(Result::is_err) || registry.as_ref().is_some_and(Registry::is_damaged);
    Ok(if is_damaged { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn with_values(view: &SegmentView, object: Result<SegmentObject, SegmentError>) -> Shown {
    let object = object?;
    let values = object::values(view, &object)?;
    Ok((object, values))
}

fn to_text(
    path: &Path,
    file: &Metadata,
    usage: &Usage,
    users: Option<&Users>,
    objects: &[Shown],
) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<10} {value}");
    };
    line("segment", super::text_of(path));
    line("format", usage.format.to_string());
    line("size", format!("{} bytes, {} of them in memory", file.size(), 512 * file.blocks()));
    line("owner", format!("user {}, mode {:o}", file.uid(), file.mode() & 0o7777));
    line("processes", Users::describe(users));
    line("index", format!("{} entries used of {}", objects.len(), usage.index_entries));
    let used = |used: u64, bytes: u64| format!("{used} bytes used of {bytes}");
    line("records", used(usage.record_bytes_used, usage.record_bytes));
    let in_lane = used(usage.lane_bytes_used, usage.lane_bytes);
    line("lanes", format!("{}; in each, {in_lane}", usage.lanes));
    line("objects", "a range is of a counter that changed meanwhile".to_owned());
    for shown in objects {
        let _ = match shown {
            Err(error) => writeln!(text, "  {error}"),
            Ok((object, values)) => {
                let kind = object::kind_name(object.kind());
                writeln!(text, "  {:?} ({kind})  {}", object.name(), object::to_text(values))
            }
        };
    }
    text
}

fn to_json(
    path: &Path,
    file: &Metadata,
    usage: &Usage,
    users: Option<&Users>,
    objects: &[Shown],
) -> Value {
    let objects: Vec<_> = objects
        .iter()
        .map(|shown| match shown {
            Err(error) => json!({ "error": error.to_string() }),
            Ok((object, values)) => object::to_json(object, values),
        })
        .collect();
    json!({
        "path": path.to_string_lossy(),
        "format": usage.format,
        "size_bytes": file.size(),
        "memory_bytes": 512 * file.blocks(),
        "owner": file.uid(),
        "mode": format!("{:o}", file.mode() & 0o7777),
        "processes": users.map(|users| &users.processes),
        "unknown_processes": users.map(|users| users.unknown),
        "index_entries": usage.index_entries,
        "record_bytes": usage.record_bytes,
        "record_bytes_used": usage.record_bytes_used,
        "lanes": usage.lanes,
        "lane_bytes": usage.lane_bytes,
        "lane_bytes_used": usage.lane_bytes_used,
        "objects": objects,
    })
}
