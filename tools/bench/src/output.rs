//! What the program writes, and what it ends with.

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::{Context as _, Result};

/// Exit status of a run that failed.
pub(crate) const FAILED: u8 = 1;
/// Exit status when nothing was run, because the request was bad; clap's too.
pub(crate) const REFUSED: u8 = 2;

/// Prints without the panic of `println!` when nobody reads any more.
pub(crate) fn print_line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

/// Whoever read the output has seen enough: an end, not a failure.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

pub(crate) fn complain(why: &impl Display, status: u8) -> ExitCode {
    warn(&format!("error: {why}"));
    ExitCode::from(status)
}

/// Says something to people. If standard error is closed there is nobody to say it to.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns the exit status of a run.
pub(crate) fn end(ran: Result<()>) -> ExitCode {
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("{error:#}"), FAILED),
    }
}
