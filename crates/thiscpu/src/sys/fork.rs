//! The fork generation: a number that differs between a process and its forked children.
//!
//! A child of `fork` inherits locks that threads of its parent hold, but not the threads. So every
//! lock of this library carries the generation that it was taken in, and a lock of another
//! generation is free. The number lies on a page that the kernel wipes in the child
//! (`MADV_WIPEONFORK`). That also detects a child of a bare `clone`, and no code runs at fork.

use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use super::degradation::{self, DegradationKind};
use super::errno;

/// The generation of a process that was not forked since its first use of this library.
const FIRST: u32 = 1;

/// The highest generation so far. A fork copies it, so a child counts on from its parent's.
static HIGHEST: AtomicU32 = AtomicU32::new(FIRST);

/// The page that reads 0 in a fresh child, or null before [`init`].
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The generation if the kernel cannot wipe a page; a fork handler clears it.
static FALLBACK: AtomicU32 = AtomicU32::new(FIRST);

/// Maps the page. May run repeatedly and on several threads at once; the first page stays.
pub(crate) fn init() {
    // Acquire: pairs with the exchange below, here and in `generation`.
    if !PAGE.load(Acquire).is_null() {
        return;
    }
    let page = first_page().unwrap_or_else(|| {
        degradation::note(DegradationKind::ForkDetection, errno::last());
        // SAFETY: the handler only stores to a static, which the child of a multi-threaded process
        // may do.
        unsafe { libc::pthread_atfork(None, None, Some(clear_fallback)) };
        &raw const FALLBACK as *mut AtomicU32
    });
    // AcqRel: pairs with the Acquire loads of PAGE, so that they find the page's first value.
    if PAGE.compare_exchange(ptr::null_mut(), page, AcqRel, Acquire).is_err()
        && !ptr::eq(page, &raw const FALLBACK)
    {
        // SAFETY: this thread mapped the page, and the exchange failed, so no other thread knows
        // it.
        unsafe { libc::munmap(page.cast(), page_bytes()) };
    }
}

/// Returns the size of a page that is not huge, in bytes.
pub(super) fn page_bytes() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the number leads to nothing else, and all threads store the same one.
    match BYTES.load(Relaxed) {
        0 => {
            // SAFETY: sysconf reads a constant.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize };
            BYTES.store(bytes, Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Maps the page, and stores the first generation there.
fn first_page() -> Option<*mut AtomicU32> {
    let page = wiped_page::<AtomicU32>()?;
    // SAFETY: the word lies at the start of the new page, so it is mapped and aligned.
    unsafe { page.as_ref() }.store(HIGHEST.load(Relaxed), Relaxed);
    Some(page.as_ptr())
}

/// Maps a page of zeros that reads as zeros again in each fresh child.
pub(crate) fn wiped_page<T>() -> Option<ptr::NonNull<T>> {
    // SAFETY: a new anonymous mapping aliases nothing; it is unmapped if the kernel refuses the
    // advice.
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
        ptr::NonNull::new(page.cast())
    }
}

extern "C" fn clear_fallback() {
    // Relaxed: the child has only this thread.
    FALLBACK.store(0, Relaxed);
}

/// Returns the generation of this process, which is never 0. Async-signal-safe.
pub(crate) fn generation() -> u32 {
    let page = PAGE.load(Acquire);
    if page.is_null() {
        return HIGHEST.load(Relaxed);
    }
    // SAFETY: PAGE points to a page or static that is never unmapped once it was published.
    let current = unsafe { &*page };
    // Relaxed, here and in `adopt`: the generation is a number that leads to nothing else.
    match current.load(Relaxed) {
        0 => adopt(current),
        generation => generation,
    }
}

/// Gives this process the next generation, when a child first looks at its page.
#[cold]
fn adopt(current: &AtomicU32) -> u32 {
    // The number only has to be new to this process. Two threads that come here at once draw two
    // numbers, and the exchange below keeps one.
    let next = HIGHEST.fetch_add(1, Relaxed).wrapping_add(1).max(FIRST);
    match current.compare_exchange(0, next, Relaxed, Relaxed) {
        Ok(_) => next,
        Err(winner) => winner,
    }
}
