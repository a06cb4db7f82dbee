//! Writes the profile as text: that of gperftools' heap profiles, already weighted.
//!
//! ```text
//! heap profile: <live objects>: <live bytes> [<all objects>: <all bytes>] @ heapprofile
//! <live objects>: <live bytes> [<all objects>: <all bytes>] @ 0x... 0x...
//! # peak <objects> <bytes>
//! MAPPED_LIBRARIES:
//! <lines of /proc/self/maps>
//! # build-id <address> <digits>
//! ```
//!
//! A build ID follows the first line of its object.
//!
//! Readers skip lines that begin with `#`. The name `heapprofile` tells them not to weight again.
//! Addresses are return addresses, except for the first one of a stack.

use core::ffi::c_int;
use core::fmt::{self, Write};

use super::build_id::BuildIds;
use super::stacks::{Entry, all, count};
use super::weight::{OBJECT, Weight};
use super::{blocks, countdown, system};

/// Writes the profile to a file; fails with an error number.
pub(super) fn write(to: c_int) -> Result<(), c_int> {
    let mut out = Output { to, text: [0; TEXT_BYTES], filled: 0, error: 0 };
    system::without_write_signals(|| {
        let written = write_stacks(&mut out)
            .and_then(|()| write_mappings(&mut out))
            .and_then(|()| out.flush());
        written.map_err(|_| out.error)
    })
}

/// The size of the output's buffer. A call in a signal handler may use 2 KiB of stack in all.
const TEXT_BYTES: usize = 256;
/// The size of a piece of the mappings that is read at once.
const PIECE_BYTES: usize = 128;

/// A file, behind a buffer.
struct Output {
    to: c_int,
    text: [u8; TEXT_BYTES],
    filled: usize,
    /// The number of the error that ended the output.
    error: c_int,
}

impl Output {
    fn flush(&mut self) -> fmt::Result {
        system::write_all(self.to, &self.text[..self.filled]).map_err(|error| {
            self.error = error;
            fmt::Error
        })?;
        self.filled = 0;
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        for &byte in bytes {
            if self.filled == TEXT_BYTES {
                self.flush()?;
            }
            self.text[self.filled] = byte;
            self.filled += 1;
        }
        Ok(())
    }
}

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }
}

/// The four numbers of a line: live and allocated objects and bytes.
struct Numbers([Weight; 2]);

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [live, all] = self.0;
        let rounded = |objects: u64| (objects + OBJECT / 2) / OBJECT;
        let (live_objects, all_objects) = (rounded(live.objects), rounded(all.objects));
        write!(f, "{live_objects}: {} [{all_objects}: {}] @", live.bytes, all.bytes)
    }
}

fn write_stacks(out: &mut Output) -> fmt::Result {
    let mut totals = [Weight::default(); 2];
    for entry in all() {
        for (total, weight) in totals.iter_mut().zip(entry.live_and_allocated()) {
            total.objects += weight.objects;
            total.bytes += weight.bytes;
        }
    }
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    writeln!(out, "heap profile: {} heapprofile", Numbers(totals))?;
    let (interval, dropped, stacks) = (countdown::interval(), blocks::dropped(), count());
    writeln!(
        out,
        "# thiscpu 1 interval={interval} pid={process} dropped={dropped} stacks={stacks}"
    )?;
    all().try_for_each(|entry| write_stack(entry, out))
}

fn write_stack(entry: &Entry, out: &mut Output) -> fmt::Result {
    let numbers = entry.live_and_allocated();
    if numbers[1].objects == 0 {
        return Ok(());
    }
    write!(out, "{}", Numbers(numbers))?;
    for (index, frame) in entry.frames().iter().enumerate() {
        // The recorded addresses lie within the call instructions.
        write!(out, " {:#x}", frame + usize::from(index > 0))?;
    }
    if entry.frames().is_empty() {
        // Readers want an address; none of the process's is this low.
        out.write_str(" 0x1")?;
    }
    let peak = entry.peak();
    writeln!(out, "\n# peak {} {}", (peak.objects + OBJECT / 2) / OBJECT, peak.bytes)
}

fn write_mappings(out: &mut Output) -> fmt::Result {
    out.write_str("\nMAPPED_LIBRARIES:\n")?;
    let Ok(maps) = system::open(c"/proc/self/maps", libc::O_RDONLY) else {
        // Without them the addresses are still there.
        return Ok(());
    };
    let mut ids = BuildIds::new();
    let mut piece = [0; PIECE_BYTES];
    let written = loop {
        match system::read(maps, &mut piece) {
            Ok(read @ 1..) => match write_lines(&piece[..read], &mut ids, out) {
                Ok(()) => {}
                error => break error,
            },
            _ => break Ok(()),
        }
    };
    system::close(maps);
    written
}

/// Writes a part of the mappings, and the build IDs of objects whose first line ends in it.
fn write_lines(piece: &[u8], ids: &mut BuildIds, out: &mut Output) -> fmt::Result {
    for &byte in piece {
        out.push(&[byte])?;
        if let Some((start, id)) = ids.take(byte) {
            writeln!(out, "# build-id {start:x} {id}")?;
        }
    }
    Ok(())
}
