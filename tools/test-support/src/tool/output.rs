//! The output of a program, and its exit status.
//!
//! A closed pipe is no error: the reader has seen enough. Any other failed write ends a program
//! with [`FAILED`] and the reason.

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser;

/// Exit status of a run that failed.
pub const FAILED: u8 = 1;
/// Exit status if nothing was run because the request was bad; clap's too.
pub const REFUSED: u8 = 2;

/// Parses the command line; ends the process after `--help`, `--version` and errors.
pub fn parse<P: Parser>() -> P {
    P::try_parse().unwrap_or_else(|answer| {
        let written = answer.print().and_then(|()| io::stdout().flush());
        let status = is_read(written).map_or_else(
            |why| {
                note(&format!("error: {why}"));
                FAILED.into()
            },
            |_| answer.exit_code(),
        );
        std::process::exit(status)
    })
}

/// Writes a line to standard output and returns whether there still is a reader.
///
/// # Errors
///
/// If the line cannot be written for another reason than a closed pipe.
pub fn print_line(text: &str) -> Result<bool, String> {
    let mut stdout = io::stdout().lock();
    is_read(writeln!(stdout, "{text}").and_then(|()| stdout.flush()))
}

fn is_read(written: io::Result<()>) -> Result<bool, String> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}

/// Writes the reason of a failure to standard error, and returns `status`.
pub fn complain(why: &impl Display, status: u8) -> ExitCode {
    note(&format!("error: {why}"));
    ExitCode::from(status)
}

/// Writes a line to standard error. Errors are ignored: nobody could be told of them.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
