//! Standard output, with errors that are noticed.

use std::io::{self, ErrorKind, Write as _};

use anyhow::{Context as _, Result};

/// Writes to standard output. A reader that closed the pipe has what it wanted: no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}
