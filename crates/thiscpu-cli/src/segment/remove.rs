//! `thiscpu segment rm`: removes the file of a segment.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use thiscpu::{SegmentErrorKind, SegmentView};

use super::users::Users;
use crate::{FAILED, output};

/// Runs the subcommand.
pub(super) fn main(path: &Path) -> Result<ExitCode> {
    if let Err(error) = SegmentView::open(path) {
        // A damaged segment, or another version's, is one to be removed.
        let is_other =
            matches!(error.kind(), SegmentErrorKind::System { .. } | SegmentErrorKind::NotASegment);
        if is_other {
            return Ok(super::refuse("remove", path, &error));
        }
    }
    let users = fs::metadata(path).ok().and_then(|file| Users::of(&file));
    let name = super::text_of(path);
    if let Err(error) = fs::remove_file(path) {
        let advice = "run as the owner of the file or of its directory";
        output::note(&format!("cannot remove {name}: {error}; {advice}"));
        return Ok(ExitCode::from(FAILED));
    }
    let users = Users::describe(users.as_ref());
    output::print(&format!("removed {name}; processes that keep it until they end: {users}\n"))?;
    Ok(ExitCode::SUCCESS)
}
