//! The report of an error: the error, its stack, and the stacks of the allocation and the free.
//!
//! The thread that made the error writes it, in a signal handler or in `free`, while other threads
//! run on. It does not hold the pool's lock. `dladdr` takes the loader's lock, which is recursive,
//! so this thread may hold it already. Another thread that holds it delays the report.

use core::ffi::{CStr, c_void};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::{mem, ptr};

use super::error::Error;
use super::slot::State;
use super::stderr::write_line;
use crate::stack::{self, Stack};

/// The thread that writes the report, or 0. A process writes one report, and ends with it.
static REPORTER: AtomicU32 = AtomicU32::new(0);

/// The tenths of a second that a thread waits for another one's report to end the process.
const WAIT_TENTHS: usize = 100;

/// Returns whether this thread should write the report.
///
/// If another thread does, waits for the process to end. It stops after some seconds, because in a
/// forked child that thread may not exist.
pub(super) fn begin() -> bool {
    let this = stack::this_thread();
    // Relaxed: no other memory is passed on with it.
    match REPORTER.compare_exchange(0, this, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(reporter) if reporter == this => false,
        Err(_) => {
            let tenth = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            for _ in 0..WAIT_TENTHS {
                let no_rest = ptr::null_mut::<libc::timespec>();
                // The C library's function is a cancellation point.
                //
                // SAFETY: the time is valid, and null means that the rest is not returned.
                unsafe { libc::syscall(libc::SYS_nanosleep, &raw const tenth, no_rest) };
            }
            false
        }
    }
}

/// Writes the report of an error that was made at the stack `now`.
pub(super) fn write(error: &Error, now: &Stack) {
    write_line(format_args!("thiscpu-malloc: {error}"));
    if error.is_torn {
        write_line(format_args!(
            "(the pool may have changed meanwhile: what follows may mix two blocks)"
        ));
    }
    write_stack("by thread", now);
    if let Some(block) = &error.block {
        write_stack("allocated by thread", &block.allocated);
        if block.state == State::Freed {
            write_stack("freed by thread", &block.freed);
        }
    }
    write_line(format_args!("To see lines of source: addr2line -Cfe OBJECT OFFSET"));
}

fn write_stack(title: &str, stack: &Stack) {
    write_line(format_args!("{title} {}:", stack.thread));
    if stack.addresses().next().is_none() {
        write_line(format_args!("    its stack is unknown"));
    }
    for (index, address) in stack.addresses().enumerate() {
        write_line(format_args!("    #{index} {}", CodeAddress(address)));
    }
}

/// A code address, shown as object and offset, with the symbol if it has one.
struct CodeAddress(usize);

impl fmt::Display for CodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: `Dl_info` is plain data, for which zeros are valid.
        let mut found: libc::Dl_info = unsafe { mem::zeroed() };
        // SAFETY: dladdr accepts any address, and writes to the structure it is given.
        let is_found = unsafe { libc::dladdr(self.0 as *const c_void, &raw mut found) } != 0;
        if !is_found || found.dli_fname.is_null() {
            return write!(f, "{:#x}", self.0);
        }
        let offset = self.0.wrapping_sub(found.dli_fbase as usize);
        write!(f, "{}+{offset:#x}", LoaderName(found.dli_fname))?;
        if found.dli_sname.is_null() {
            return Ok(());
        }
        let inside = self.0.wrapping_sub(found.dli_saddr as usize);
        write!(f, " {}+{inside:#x}", LoaderName(found.dli_sname))
    }
}

/// A name that the loader has returned, shown with invalid UTF-8 replaced by `?`.
struct LoaderName(*const libc::c_char);

impl fmt::Display for LoaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the loader's names end with a zero byte, and stay valid while their object is
        // loaded, which it is: its code is on a stack.
        let bytes = unsafe { CStr::from_ptr(self.0) }.to_bytes();
        bytes.utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            if chunk.invalid().is_empty() { Ok(()) } else { f.write_str("?") }
        })
    }
}

/// Ends the process with `SIGABRT`.
pub(super) fn abort() -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
