//! The report: what was done wrong, where, and where the block came from and went.
//!
//! It is written by the thread that did it, in a signal handler or in `free`, while other threads run on. It holds no lock of
//! the pool. `dladdr` takes the loader's, which the thread may hold itself; a thread that holds it for long holds up the report.

use core::ffi::{CStr, c_void};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::{mem, ptr};

use super::error::Error;
use super::slot::State;
use super::stack::{self, Stack};
use super::stderr::write_line;

/// Which thread writes a report; 0 for none. There is one report a process: it ends by it.
static REPORTER: AtomicU32 = AtomicU32::new(0);

/// For how many tenths of a second the process of another thread's report may live on.
const WAIT_TENTHS: usize = 100;

/// Whether this thread is to write the report. If another one does, waits for the process to end, for some seconds: that one
/// may have been lost in a fork.
pub(super) fn begin() -> bool {
    let this = stack::this_thread();
    // Relaxed: nothing is handed over.
    match REPORTER.compare_exchange(0, this, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(reporter) if reporter == this => false,
        Err(_) => {
            let tenth = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            for _ in 0..WAIT_TENTHS {
                // SAFETY: sleeps.
                unsafe { libc::nanosleep(&raw const tenth, ptr::null_mut()) };
            }
            false
        }
    }
}

/// Writes it.
pub(super) fn write(error: &Error, now: &Stack) {
    write_line(format_args!("thiscpu-malloc: {error}"));
    if error.is_torn {
        write_line(format_args!(
            "(the pool was being changed meanwhile: what follows may be of two blocks)"
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
        write_line(format_args!("    its stack is not known"));
    }
    for (index, address) in stack.addresses().enumerate() {
        write_line(format_args!("    #{index} {}", CodeAddress(address)));
    }
}

/// An address as an object and an offset in it, and the symbol if there is one.
struct CodeAddress(usize);

impl fmt::Display for CodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: plain data, for which zeros are good.
        let mut found: libc::Dl_info = unsafe { mem::zeroed() };
        // SAFETY: looks the address up, whatever it is, and fills in the structure.
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

/// A name of the loader's.
struct LoaderName(*const libc::c_char);

impl fmt::Display for LoaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the loader's names end with a zero byte and stay while their object is loaded.
        let bytes = unsafe { CStr::from_ptr(self.0) }.to_bytes();
        bytes.utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            if chunk.invalid().is_empty() { Ok(()) } else { f.write_str("?") }
        })
    }
}

/// Ends the process by `SIGABRT`.
pub(super) fn abort() -> ! {
    // SAFETY: does not return.
    unsafe { libc::abort() }
}
