//! Child processes that measure: this program again, with a hidden subcommand.
//!
//! A process's history, its memory and its allocator's state, would be part of some measurements,
//! so each of those has a process of its own. A child prints its answer, one line of JSON, and
//! exits. A child that fails, or does not answer in time, fails the run with the reason.

use std::{
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Serialize, de::DeserializeOwned};

use crate::slice;

/// Starts a child with a hidden subcommand and `spec`, and returns its answer.
///
/// Fails if the answer does not come within `patience`, and with [`slice::Interrupted`] if an end
/// of the run is requested before.
pub(crate) fn ask<Answer: DeserializeOwned>(
    subcommand: &str,
    spec: &impl Serialize,
    patience: Duration,
) -> Result<Answer> {
    let spec = serde_json::to_string(spec)?;
    let mut command = Command::new("/proc/self/exe");
    command.args([subcommand, &spec]);
    answer_of(&mut command, patience).with_context(|| format!("child that measures {spec}"))
}

fn answer_of<Answer: DeserializeOwned>(
    command: &mut Command,
    patience: Duration,
) -> Result<Answer> {
    // A request to end is seen this late. To look more often would take CPU time from the child.
    const LOOK: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + patience;
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = KilledOnDrop(spawned.context("cannot be started")?);
    let mut stdout = child.0.stdout.take().context("has no standard output")?;
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        sender.send(stdout.read_to_end(&mut text).map(|_| text))
    });
    let text = loop {
        slice::check_stop()?;
        let left = deadline.saturating_duration_since(Instant::now());
        match answer.recv_timeout(left.min(LOOK)) {
            Ok(text) => break text.context("cannot be read from")?,
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(_) => bail!("has not answered after {patience:?}, and was killed"),
        }
    };
    // Its output is closed: it has ended, or is about to.
    let status = child.0.wait().context("cannot be waited for")?;
    if matches!(status.signal(), Some(libc::SIGINT | libc::SIGTERM)) {
        // Ctrl-C goes to this process too, maybe a moment later.
        slice::sleep(Duration::from_secs(1))?;
        slice::check_stop()?;
    }
    ensure!(status.success(), "failed: {status}");
    let line = String::from_utf8_lossy(&text);
    ensure!(!line.trim().is_empty(), "ended without an answer");
    serde_json::from_str(&line).with_context(|| format!("answered {:?}", line.trim()))
}

/// A child that does not outlive the caller that waits for it, and is never left as a zombie.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both fail only if the child has been waited for already.
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

    fn error_of_shell(script: &str, patience: Duration) -> String {
        format!("{:#}", answer_of_shell(script, patience).unwrap_err())
    }

    #[test]
    fn answers_may_come_in_pieces() {
        let answer = answer_of_shell("printf '[1, '; sleep 0.05; echo '2]'", PATIENCE);
        assert_eq!(answer.unwrap(), [1, 2]);
    }

    #[test]
    fn children_that_fail_are_reported_with_the_reason() {
        assert!(error_of_shell("kill -SEGV $$", PATIENCE).contains("SIGSEGV"));
        assert!(error_of_shell("echo '[1]'; exit 7", PATIENCE).contains("exit status: 7"));
        assert_eq!(error_of_shell("true", PATIENCE), "ended without an answer");
        assert!(error_of_shell("echo well", PATIENCE).starts_with("answered \"well\""));
        let error = answer_of::<()>(&mut Command::new("/nowhere"), PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "cannot be started");
    }

    #[test]
    fn children_that_hang_are_killed() {
        // If the child were not killed, the test would take as long as it sleeps.
        let error = error_of_shell("exec sleep 1000", Duration::from_millis(50));
        assert_eq!(error, "has not answered after 50ms, and was killed");
    }
}
