//! Output of this program.

pub(crate) use thiscpu_program::output::print;

const NAME: &str = "thiscpu";

/// Writes a line to standard error. Errors are ignored: nobody could be told of them.
pub(crate) fn note(text: &str) {
    thiscpu_program::output::note(NAME, text);
}

/// Writes clap's answer to wrong arguments, `--help` or `--version`; returns the exit status.
pub(crate) fn answer(answer: &clap::Error) -> i32 {
    thiscpu_program::output::answer(NAME, answer)
}
