//! Rust's runtime in this library: memory for panic messages, and aborting on panics.
//!
//! A panic may happen in the middle of the allocator, so its message must not be allocated there.
//! It gets pages from the system. A panic must not unwind into C either, so the process aborts with
//! the message.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::panic::PanicHookInfo;

use thiscpu::__internal::write_line;

#[global_allocator]
static PAGES: Pages = Pages;

/// An allocator that maps each block. This library only allocates when it is about to fail.
struct Pages;

// SAFETY: each block is a mapping of its own with at least the requested size. Its address is a
// multiple of the page size, and larger alignments are refused.
unsafe impl GlobalAlloc for Pages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        const LARGEST_ALIGN: usize = 4096;
        if layout.align() > LARGEST_ALIGN {
            return ptr::null_mut();
        }
        // SAFETY: the mapping is new, so nothing else uses it.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), layout.size(), access, flags, -1, 0)
        };
        if start == libc::MAP_FAILED { ptr::null_mut() } else { start.cast() }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that the block is one of `alloc` with this layout, so it is
        // a mapping of this size, and that nothing uses it any more.
        unsafe { libc::munmap(block.cast(), layout.size()) };
    }
}

/// Makes every panic from now on abort the process, with its message on standard error.
///
/// From the second call on, costs a load.
pub(crate) fn abort_on_panic() {
    static DONE: AtomicBool = AtomicBool::new(false);
    // Relaxed: a thread that finds the hook set reads nothing else.
    if !DONE.load(Relaxed) && !DONE.swap(true, Relaxed) {
        // Boxing a function item allocates nothing.
        std::panic::set_hook(Box::new(abort_with_panic));
    }
}

fn abort_with_panic(panic: &PanicHookInfo<'_>) {
    fail(format_args!("{panic}"))
}

/// Aborts the process with a message.
pub(crate) fn fail(why: core::fmt::Arguments<'_>) -> ! {
    write_line(libc::STDERR_FILENO, format_args!("thiscpu-malloc: {why}"));
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
