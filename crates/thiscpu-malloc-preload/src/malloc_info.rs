//! malloc_info: glibc's XML description of the heap, with this allocator's numbers.
//!
//! The text goes out in pieces by `fputs`. That may allocate, so nothing is locked meanwhile.

use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};

use thiscpu_malloc::{ClassStats, Stats, class_stats, stats};

unsafe extern "C" {
    fn fputs(text: *const c_char, stream: *mut libc::FILE) -> c_int;
}

/// Writes the heap as XML to `stream`; returns 0.
///
/// Returns `EINVAL` if `options` is not 0, like glibc, and -1 if the stream fails. There is one
/// heap, whose free blocks are listed by size.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let mut out = Stream { stream, piece: [0; PIECE_BYTES], filled: 0 };
    let is_written = write_all(&mut out).is_ok() && out.flush().is_ok();
    if is_written { 0 } else { -1 }
}

const PIECE_BYTES: usize = 1024;

/// A stream of the C library, behind a buffer for one piece of text and its final zero byte.
struct Stream {
    stream: *mut libc::FILE,
    piece: [u8; PIECE_BYTES],
    filled: usize,
}

impl Stream {
    fn flush(&mut self) -> fmt::Result {
        self.piece[self.filled] = 0;
        self.filled = 0;
        // SAFETY: the piece ends with a zero byte. The caller of `malloc_info` guarantees that the
        // stream is open.
        match unsafe { fputs(self.piece.as_ptr().cast(), self.stream) } {
            0.. => Ok(()),
            _ => Err(fmt::Error),
        }
    }
}

impl Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.filled == PIECE_BYTES - 1 {
                self.flush()?;
            }
            self.piece[self.filled] = byte;
            self.filled += 1;
        }
        Ok(())
    }
}

fn write_all(out: &mut Stream) -> fmt::Result {
    out.write_str("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n")?;
    for ClassStats { size, free_bytes, .. } in class_stats().filter(|class| class.free_bytes > 0) {
        let count = free_bytes / size;
        writeln!(
            out,
            "<size from=\"{size}\" to=\"{size}\" total=\"{free_bytes}\" count=\"{count}\"/>"
        )?;
    }
    out.write_str("</sizes>\n")?;
    let now = stats();
    write_totals(&now, out)?;
    out.write_str("</heap>\n")?;
    write_totals(&now, out)?;
    let Stats { large_blocks, large_bytes, .. } = now;
    writeln!(out, "<total type=\"mmap\" count=\"{large_blocks}\" size=\"{large_bytes}\"/>")?;
    out.write_str("</malloc>\n")
}

fn write_totals(now: &Stats, out: &mut Stream) -> fmt::Result {
    let Stats { free_blocks, free_bytes, system_bytes, peak_system_bytes, mapped_bytes, .. } = now;
    write!(
        out,
        "<total type=\"fast\" count=\"0\" size=\"0\"/>\n\
         <total type=\"rest\" count=\"{free_blocks}\" size=\"{free_bytes}\"/>\n\
         <system type=\"current\" size=\"{system_bytes}\"/>\n\
         <system type=\"max\" size=\"{peak_system_bytes}\"/>\n\
         <aspace type=\"total\" size=\"{mapped_bytes}\"/>\n\
         <aspace type=\"mprotect\" size=\"{mapped_bytes}\"/>\n"
    )
}
