//! `thiscpu segment`: lists, shows, checks and removes segments.

mod check;
mod list;
mod object;
mod registry;
mod remove;
mod show;
mod users;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use thiscpu::{SegmentError, SegmentErrorKind, SegmentView};
use thiscpu_program::find;
use thiscpu_program::text::of_path as text_of;

use crate::{FAILED, REFUSED, output};

const DETAILS: &str = "\
No command writes to a segment, so none disturbs a process that uses it.

Exit status: 0 done; 1 the segment is damaged, has a wrong length, or could not be removed; 2 wrong
arguments, the file cannot be read or is no segment, or another version of thiscpu or another
machine made it.";

/// Options of `thiscpu segment`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the segments in a directory, with sizes in bytes; skip all other files
    Ls {
        /// The directory
        #[arg(default_value = "/dev/shm")]
        directory: PathBuf,
    },
    /// Show a segment's sizes, processes and objects, and the values in it
    ///
    /// The line of a budget also says how many units ended processes hold. They return at the next
    /// call on the budget that would refuse, wait or read the available units.
    Show {
        /// The file of the segment
        path: PathBuf,
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Check that a segment's sizes, index and records fit together
    ///
    /// Not the values of counters and budgets: a process that can write may give them any value.
    Check {
        /// The file of the segment
        path: PathBuf,
    },
    /// Remove the file of a segment; refuse any other file
    ///
    /// Processes that are attached keep it until they end.
    Rm {
        /// The file of the segment
        path: PathBuf,
    },
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Ls { directory } => list::main(directory),
        Command::Show { path, json } => show::main(path, *json),
        Command::Check { path } => check::main(path),
        Command::Rm { path } => remove::main(path),
    }
}

/// Opens a segment to read it; otherwise says why not, and returns the exit status.
fn open(action: &str, path: &Path) -> Result<SegmentView, ExitCode> {
    SegmentView::open(path).map_err(|error| refuse(action, path, &error))
}

/// Says why a command cannot do something with a segment, and returns the exit status.
fn refuse(action: &str, path: &Path, error: &SegmentError) -> ExitCode {
    let reason = find::reason(error);
    output::note(&format!("cannot {action} {}: {reason}", text_of(path)));
    ExitCode::from(if is_damaged(error.kind()) { FAILED } else { REFUSED })
}

/// Returns whether a segment is damaged or has a wrong length, perhaps since it was opened.
fn is_damaged(kind: &SegmentErrorKind) -> bool {
    matches!(
        kind,
        SegmentErrorKind::Damaged { .. }
            | SegmentErrorKind::WrongLength { .. }
            | SegmentErrorKind::Lost
    )
}

/// Returns a number with a noun in the singular or the plural.
fn counted(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_shortened_during_a_command_is_damaged() {
        assert!(is_damaged(&SegmentErrorKind::Lost));
        assert!(!is_damaged(&SegmentErrorKind::NotASegment));
    }
}
