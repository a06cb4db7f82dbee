//! A guest as a process of this machine.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::console::Reader;

/// Runs a guest until it powers itself off, or for at most `seconds`.
///
/// Writes its console to `log`.
pub(crate) fn run(qemu: &Command, log: &Path, mut reader: Reader, seconds: u64) -> Result<()> {
    let mut file = File::create(log).with_context(|| log.display().to_string())?;
    let mut timeout = Command::new("timeout");
    // In this process's group, so that Ctrl-C ends it too.
    timeout.args(["--foreground", "--kill-after=5", &seconds.to_string()]);
    timeout.arg(qemu.get_program()).args(qemu.get_args());
    let start = timeout.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut guest = start.context("timeout")?;
    let console = guest.stdout.take().context("the console has no pipe")?;
    for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        writeln!(file, "{}", line.trim_end())?;
        reader.line(line.trim_end());
    }
    let status = guest.wait()?.code();
    let at = || format!("the console is in {}", log.display());
    ensure!(!matches!(status, Some(124 | 137)), "no end after {seconds} s; {}", at());
    ensure!(status != Some(127), "{:?} is missing", qemu.get_program());
    reader.verdict().with_context(at)
}
