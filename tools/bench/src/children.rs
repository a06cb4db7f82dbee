//! Child processes that measure: this program again, with an order in a hidden option of `bench`.
//!
//! What a process's memory or its allocator did before would be part of what is measured in it, so some things are
//! measured in a process where nothing else happens. A child prints one line of JSON, its answer, and ends. One
//! that ends otherwise, or does not end, fails the run with what is known of it.

use std::{
    io::{self, Read as _},
    os::fd::AsRawFd as _,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::de::DeserializeOwned;

/// Starts a child with a hidden subcommand and an `order`, and returns its answer, which must come
/// within `patience`.
pub(crate) fn ask<Answer: DeserializeOwned>(
    subcommand: &str,
    order: &str,
    patience: Duration,
) -> Result<Answer> {
    let mut command = Command::new("/proc/self/exe");
    command.args([subcommand, order]);
    answer_of(&mut command, patience).with_context(|| format!("the process that measures {order}"))
}

fn answer_of<Answer: DeserializeOwned>(
    command: &mut Command,
    patience: Duration,
) -> Result<Answer> {
    let deadline = Instant::now() + patience;
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = KilledOnDrop(spawned.context("cannot be started")?);
    let stdout = child.0.stdout.take().context("has no standard output")?;
    let Some(text) = read_until(stdout, deadline).context("cannot be read from")? else {
        bail!("has not answered after {patience:?}, and was killed");
    };
    // Nothing more can come: it has ended, or is about to.
    let status = child.0.wait().context("cannot be waited for")?;
    ensure!(status.success(), "failed: {status}");
    let line = String::from_utf8_lossy(&text);
    ensure!(!line.trim().is_empty(), "ended without an answer");
    serde_json::from_str(&line).with_context(|| format!("answered {:?}", line.trim()))
}

/// All that comes out of `stdout` until it is closed; none if that is not by the deadline.
///
/// It sleeps until something comes, because a parent that looked again and again would take time from its child.
fn read_until(mut stdout: ChildStdout, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    while wait_readable(&stdout, deadline)? {
        match stdout.read(&mut chunk)? {
            0 => return Ok(Some(text)),
            count => text.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(None)
}

/// Whether there is something to read, or an end, before the deadline.
fn wait_readable(stdout: &ChildStdout, deadline: Instant) -> io::Result<bool> {
    loop {
        // Rounded up, so that the last wait does not come to be many of no length.
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis() + 1;
        let timeout_ms = i32::try_from(left_ms).unwrap_or(i32::MAX);
        let mut wanted = libc::pollfd { fd: stdout.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is a local, is what the call is told of.
        match unsafe { libc::poll(&mut wanted, 1, timeout_ms) } {
            1 => return Ok(true),
            0 if Instant::now() >= deadline => return Ok(false),
            0 => {}
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// A child that does not outlive whoever waits for it, and is never left as a zombie.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both fail only if it has been waited for already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn answer_of_shell(script: &str, patience: Duration) -> Result<Vec<u32>> {
        answer_of(Command::new("sh").args(["-c", script]), patience)
    }

    /// What is said of a child that does this.
    fn complaint(script: &str, patience: Duration) -> String {
        format!("{:#}", answer_of_shell(script, patience).unwrap_err())
    }

    #[test]
    fn an_answer_may_come_in_pieces() {
        let answer = answer_of_shell("printf '[1, '; sleep 0.05; echo '2]'", PATIENCE);
        assert_eq!(answer.unwrap(), [1, 2]);
    }

    #[test]
    fn each_other_end_has_its_reason() {
        assert!(complaint("kill -SEGV $$", PATIENCE).contains("SIGSEGV"));
        assert!(complaint("echo '[1]'; exit 7", PATIENCE).contains("exit status: 7"));
        assert_eq!(complaint("true", PATIENCE), "ended without an answer");
        assert!(complaint("echo well", PATIENCE).starts_with("answered \"well\""));
        let error = answer_of::<()>(&mut Command::new("/nowhere"), PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "cannot be started");
    }

    #[test]
    fn one_that_does_not_answer_is_killed() {
        // If it were only left alone, the test would take as long as it sleeps.
        let patience = Duration::from_millis(50);
        let complaint = complaint("exec sleep 1000", patience);
        assert_eq!(complaint, "has not answered after 50ms, and was killed");
    }
}
