//! A guest as a process of this machine.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::console::Reader;

/// Runs a guest until it powers itself off, or for at most `limit`.
///
/// Writes its console to `log`.
pub(crate) fn run(
    mut qemu: Command,
    log: &Path,
    mut reader: Reader,
    limit: Duration,
) -> Result<()> {
    let mut file = File::create(log).with_context(|| log.display().to_string())?;
    let start = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut guest = Guest(start.with_context(|| format!("{:?}", qemu.get_program()))?);
    let console = guest.0.stdout.take().context("the console has no pipe")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            // The receiver is gone when the time is up.
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let end = Instant::now() + limit;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line);
                writeln!(file, "{}", line.trim_end())?;
                reader.line(line.trim_end());
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                bail!("no end after {} s; the console is in {}", limit.as_secs(), log.display());
            }
        }
    }
    guest.0.wait()?;
    reader.verdict().with_context(|| format!("the console is in {}", log.display()))
}

/// An emulator, which is killed when this is dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // Fails if the emulator has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
