//! What Rust itself needs in this library: memory for messages, and an end for panics.
//!
//! A panic may happen in the middle of the allocator, so its message must not be allocated there: pages of the
//! system take it. It must not cross into C either: the process ends with the message.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::panic::PanicHookInfo;

use thiscpu::probe::say;

#[global_allocator]
static PAGES: Pages = Pages;

/// A mapping for each allocation. Nothing in this library allocates unless it fails.
struct Pages;

// SAFETY: each block is a mapping of its own, at least as large as was asked for; its address is a multiple of
// the page size, and more is refused.
unsafe impl GlobalAlloc for Pages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        const LARGEST_ALIGN: usize = 4096;
        if layout.align() > LARGEST_ALIGN {
            return ptr::null_mut();
        }
        // SAFETY: a fresh mapping aliases nothing.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), layout.size(), access, flags, -1, 0)
        };
        if start == libc::MAP_FAILED { ptr::null_mut() } else { start.cast() }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is a mapping of that size, which nobody uses any more.
        unsafe { libc::munmap(block.cast(), layout.size()) };
    }
}

/// Makes every panic from now on the end of the process, with its message on standard error. Costs a load from the
/// second call on.
pub(crate) fn abort_on_panic() {
    static DONE: AtomicBool = AtomicBool::new(false);
    // Relaxed: who finds it done has no more to do, and nothing to look at.
    if !DONE.load(Relaxed) && !DONE.swap(true, Relaxed) {
        // A plain function takes no room in the box.
        std::panic::set_hook(Box::new(end));
    }
}

fn end(panic: &PanicHookInfo<'_>) {
    fail(format_args!("{panic}"))
}

/// Ends the process with a message.
pub(crate) fn fail(why: core::fmt::Arguments<'_>) -> ! {
    say(libc::STDERR_FILENO, format_args!("thiscpu-malloc: {why}"));
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
