//! Output, with errors that are noticed: a closed pipe is none, because its reader has seen enough.

use std::io::{self, ErrorKind, Write as _};

use anyhow::{Context as _, Result};

/// Exit status of a command that failed.
pub const FAILED: u8 = 1;
/// Exit status of a command that did nothing because the request was wrong; clap's too.
pub const REFUSED: u8 = 2;

/// Writes to standard output and returns whether there still is a reader.
///
/// # Errors
///
/// If the text cannot be written, unless standard output is a closed pipe.
pub fn print(text: &str) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    is_read(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes a line to standard error, after the name of the program.
///
/// Errors are ignored: nobody could be told of them.
pub fn note(program: &str, text: &str) {
    let _ = io::stderr().write_all(format!("{program}: {text}\n").as_bytes());
}

/// Writes clap's answer to wrong arguments, `--help` or `--version`; returns the exit status.
pub fn answer(program: &str, answer: &clap::Error) -> i32 {
    let written = answer.print().and_then(|()| io::stdout().flush());
    match is_read(written) {
        Err(why) if !answer.use_stderr() => {
            note(program, &format!("{why:#}"));
            FAILED.into()
        }
        _ => answer.exit_code(),
    }
}

fn is_read(written: io::Result<()>) -> Result<bool> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("cannot write to standard output"),
    }
}
