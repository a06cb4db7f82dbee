//! Programs under test, which may hang.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::slowdown;

/// How long a program under test may run, in seconds; most end within ten.
const PATIENCE_S: u32 = 120;

/// Runs a program and returns its output, as [`Command::output`] does.
///
/// A program that hangs is killed after two minutes, so its status is that of SIGKILL. Its children
/// are killed too, because one that keeps a pipe open would make the test hang.
///
/// # Errors
///
/// If the program cannot be started, or its output cannot be read.
pub fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, Duration::from_secs((PATIENCE_S * slowdown()).into()))
}

fn output_within(command: &mut Command, patience: Duration) -> io::Result<Output> {
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = command.spawn()?;
    let group = -i32::try_from(program.id()).expect("process ids are positive");
    let (has_ended, end) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                // SAFETY: `kill` has no preconditions. The group is the program's, which has not
                // been waited for, or has children that keep its pipes open.
                unsafe { libc::kill(group, libc::SIGKILL) };
            }
        });
        let output = program.wait_with_output();
        drop(has_ended);
        output
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn output_ends_program_and_children_that_hang() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo begun; sleep 1000 & sleep 1000"]);
        let output = output_within(&mut shell, Duration::from_millis(100)).unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn output_waits_for_programs_that_end() {
        let mut shell = Command::new("sh");
        let output = output(shell.args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
    }
}
