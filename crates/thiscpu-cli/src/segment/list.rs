//! `thiscpu segment ls`: the segments in a directory.

use std::fmt::Write as _;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use thiscpu::__internal::inspect;
use thiscpu::{SegmentErrorKind, SegmentView};

use crate::{REFUSED, output};

/// A line of the list.
struct Line {
    name: String,
    /// In the order of [`LABELS`], without the name.
    values: [String; 7],
}

const LABELS: [&str; 8] =
    ["segment", "size", "memory", "objects", "lanes", "owner", "mode", "format"];

/// Runs the subcommand.
pub(super) fn main(directory: &Path) -> Result<ExitCode> {
    let entries = match fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => {
            let advice = match error.kind() {
                ErrorKind::NotADirectory => "give a directory, or use `thiscpu segment show`",
                ErrorKind::PermissionDenied => "run as its owner",
                _ => "give the directory of the segments",
            };
            let directory = super::text_of(directory);
            output::note(&format!("cannot list {directory}: {error}; {advice}"));
            return Ok(ExitCode::from(REFUSED));
        }
    };
    let mut unreadable = 0;
    let mut lines: Vec<_> =
        entries.iter().filter_map(|entry| line_of(entry, &mut unreadable)).collect();
    lines.sort_by(|one, other| one.name.cmp(&other.name));
    if output::print(&to_text(&lines))? && unreadable > 0 {
        let files = super::counted(unreadable, "file", "files");
        output::note(&format!(
            "cannot list {files}: permission denied; run as their owner if they are segments"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes a file if it is a segment.
fn line_of(entry: &DirEntry, unreadable: &mut usize) -> Option<Line> {
    // A link is not followed.
    let file = entry.metadata().ok().filter(fs::Metadata::is_file)?;
    let [objects, lanes, format] = match SegmentView::open(entry.path()) {
        Ok(view) => {
            let usage = inspect::usage(&view);
            let damaged = view.objects().filter(Result::is_err).count();
            let format = match damaged {
                0 => usage.format.to_string(),
                _ => {
                    let records = super::counted(damaged, "damaged record", "damaged records");
                    format!("{}, {records}", usage.format)
                }
            };
            [view.objects().count().to_string(), usage.lanes.to_string(), format]
        }
        Err(error) => {
            let format = match error.kind() {
                SegmentErrorKind::ForeignByteOrder => "other byte order".to_owned(),
                SegmentErrorKind::OtherFormat { found, .. } => format!("{found}, unknown"),
                SegmentErrorKind::UnknownFeatures { unknown } => {
                    format!("unknown features {unknown:#x}")
                }
                SegmentErrorKind::Damaged { field } => format!("its {field} is damaged"),
                SegmentErrorKind::WrongLength { .. } => "wrong length".to_owned(),
                SegmentErrorKind::System { errno: libc::EACCES | libc::EPERM, .. } => {
                    *unreadable += 1;
                    return None;
                }
                // No segment, or removed since.
                _ => return None,
            };
            ["-".to_owned(), "-".to_owned(), format]
        }
    };
    let size = file.size().to_string();
    let memory = (512 * file.blocks()).to_string();
    let mode = format!("{:o}", file.mode() & 0o7777);
    let values = [size, memory, objects, lanes, file.uid().to_string(), mode, format];
    Some(Line { name: super::text_of(&entry.path()), values })
}

/// Returns a table, whose numbers end in one column.
fn to_text(lines: &[Line]) -> String {
    let name_width = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let name_width = name_width.max(LABELS[0].len());
    let width = |column: usize| {
        let values = lines.iter().map(|line| line.values[column].len());
        values.max().unwrap_or(0).max(LABELS[column + 1].len())
    };
    let widths: Vec<_> = (0..LABELS.len() - 1).map(width).collect();
    let mut text = String::new();
    let mut row = |name: &str, values: &[&str]| {
        let _ = write!(text, "{name:<name_width$}");
        let (format, numbers) = values.split_last().expect("columns");
        for (value, width) in numbers.iter().zip(&widths) {
            let _ = write!(text, "  {value:>width$}");
        }
        let _ = writeln!(text, "  {format}");
    };
    row(LABELS[0], &LABELS[1..]);
    for Line { name, values } in lines {
        row(name, &values.each_ref().map(String::as_str));
    }
    text
}
