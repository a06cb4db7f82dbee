//! The fork generation: a number that differs between a process and its forked children.
//!
//! A child of `fork` inherits locks that threads of its parent hold, and those threads do not exist
//! in it. Every lock of this library therefore carries the generation it was taken in; a lock of
//! another generation is free. The number lives on a page that the kernel wipes in the child
//! (`MADV_WIPEONFORK`), so that a child made by a bare `clone` is seen too, and nothing runs at fork.

use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use super::mapping::page_bytes;

/// The generation of a process that was never forked since its first use of this library.
const FIRST: u32 = 1;

/// The highest generation given out so far; copied by fork, so a child starts from its parent's.
static HIGHEST: AtomicU32 = AtomicU32::new(FIRST);

/// The page that reads 0 in a fresh child, or null before [`init`].
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Stands in for the page where the kernel cannot wipe one; the fork handler clears it.
static FALLBACK: AtomicU32 = AtomicU32::new(FIRST);

/// Makes the page. May run several times and on several threads at once; the first page stays.
pub(crate) fn init() {
    if !PAGE.load(Acquire).is_null() {
        return;
    }
    let page = wiped_page().unwrap_or_else(|| {
        // SAFETY: the handler is a plain function that stores to a static, which is allowed in the
        // child of a fork of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(clear_fallback)) };
        &raw const FALLBACK as *mut AtomicU32
    });
    // AcqRel: pairs with the Acquire loads of PAGE; the page's first value is written before.
    if PAGE.compare_exchange(ptr::null_mut(), page, AcqRel, Acquire).is_err()
        && !ptr::eq(page, &raw const FALLBACK)
    {
        // SAFETY: this thread made the page and nobody else has seen it.
        unsafe { libc::munmap(page.cast(), page_bytes()) };
    }
}

fn wiped_page() -> Option<*mut AtomicU32> {
    // SAFETY: a fresh anonymous mapping is made, given an advice, and unmapped again if the advice
    // is refused; it aliases nothing. It is at least 4 bytes and aligned to a page.
    unsafe {
        let page = libc::mmap(
            ptr::null_mut(),
            page_bytes(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, page_bytes(), libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, page_bytes());
            return None;
        }
        let page = page.cast::<AtomicU32>();
        (*page).store(HIGHEST.load(Relaxed), Relaxed);
        Some(page)
    }
}

extern "C" fn clear_fallback() {
    FALLBACK.store(0, Relaxed);
}

/// The generation of this process. Never 0. Async-signal-safe.
pub(crate) fn generation() -> u32 {
    let page = PAGE.load(Acquire);
    if page.is_null() {
        return HIGHEST.load(Relaxed);
    }
    // SAFETY: PAGE is null or points to a page (or static) that is never unmapped once published.
    let current = unsafe { &*page };
    match current.load(Relaxed) {
        0 => adopt(current),
        generation => generation,
    }
}

/// The first look at the page in a child: gives this process the next generation.
#[cold]
fn adopt(current: &AtomicU32) -> u32 {
    // Relaxed: the number only has to be new to this process; two threads that both get here draw
    // two numbers, and the exchange below keeps one.
    let next = HIGHEST.fetch_add(1, Relaxed).wrapping_add(1).max(FIRST);
    match current.compare_exchange(0, next, Relaxed, Relaxed) {
        Ok(_) => next,
        Err(winner) => winner,
    }
}
