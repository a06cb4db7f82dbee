//! `thiscpu profile`: replaces this process with `thiscpu-profile`.
//!
//! That program reads symbols and draws flame graphs. It is a package of its own, because what it
//! needs for that would take longer to build than all the rest.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use crate::output;

/// The text below the options in the man page: `--help` is answered by that program.
pub(crate) const DETAILS: &str = "\
thiscpu profile FILE             write FILE.pb.gz for pprof (go tool pprof -http=: FILE.pb.gz)
thiscpu profile FILE --svg       draw a flame graph: FILE.svg
thiscpu profile FILE --folded    print a line for each stack, with its bytes
thiscpu profile FILE --top 20    list the functions that allocate most

FILE is a heap profile of `thiscpu run --heap-profile FILE`. Bytes are those of live blocks; --space
alloc counts all that were allocated, and --at peak those that were live at the peak. -o OUT names
the file to write, or - for standard output.

Exit status: that of thiscpu-profile, or 127 if it was not found.";

const NAME: &str = "thiscpu-profile";
/// Exit status if the program is missing, as of shells.
const NOT_FOUND: u8 = 127;

/// Runs the program from beside this one, or else from `PATH`; only returns if that failed.
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let nearby = std::env::current_exe().ok().map(|program| program.with_file_name(NAME));
    let nearby = nearby.filter(|program| program.is_file());
    let program = nearby.unwrap_or_else(|| NAME.into());
    let why = Command::new(program).args(arguments).exec();
    output::note(&format!(
        "cannot start {NAME}: {why}; build it with `cargo build --release -p {NAME}`"
    ));
    ExitCode::from(NOT_FOUND)
}
