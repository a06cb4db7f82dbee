//! What can be asked about blocks and about all of the memory: malloc_usable_size, malloc_trim, mallinfo and its
//! kin.
//!
//! glibc's numbers are about its own arenas. Where there is nothing here that corresponds to a field it is 0.

use core::ffi::{c_int, c_void};

use crate::c::block;
use crate::errno::keep_errno;
use crate::stats_table;

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    block(pointer).map_or(0, |block| unsafe { thiscpu_malloc::usable_size(block) })
}

/// Whether anything was given back to the system.
#[unsafe(no_mangle)]
extern "C" fn malloc_trim(keep: usize) -> c_int {
    keep_errno(|| thiscpu_malloc::trim(keep)).into()
}

/// Accepts everything: what it would set is not there.
#[unsafe(no_mangle)]
extern "C" fn mallopt(_: c_int, _: c_int) -> c_int {
    1
}

/// The table, on standard error.
#[unsafe(no_mangle)]
extern "C" fn malloc_stats() {
    stats_table::print(libc::STDERR_FILENO);
}

/// As glibc's `struct mallinfo2`; all in bytes, but for the numbers of blocks.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info<T> {
    /// What the system has given, large blocks aside.
    arena: T,
    ordblks: T,
    smblks: T,
    /// Large blocks.
    hblks: T,
    /// In large blocks.
    hblkhd: T,
    usmblks: T,
    fsmblks: T,
    /// In use, large blocks aside.
    uordblks: T,
    /// Free, of what the system has given.
    fordblks: T,
    keepcost: T,
}

#[unsafe(no_mangle)]
extern "C" fn mallinfo2() -> Info<usize> {
    let now = thiscpu_malloc::stats();
    let arena = now.system_bytes.saturating_sub(now.large_bytes);
    let used = now.used_bytes.saturating_sub(now.large_bytes);
    Info {
        arena,
        hblks: now.large_blocks,
        hblkhd: now.large_bytes,
        uordblks: used,
        fordblks: arena.saturating_sub(used),
        ..Info::default()
    }
}

/// The same in the `int`s of old; what does not fit is the largest of them.
#[unsafe(no_mangle)]
extern "C" fn mallinfo() -> Info<c_int> {
    let fit = |value| c_int::try_from(value).unwrap_or(c_int::MAX);
    let now = mallinfo2();
    Info {
        arena: fit(now.arena),
        hblks: fit(now.hblks),
        hblkhd: fit(now.hblkhd),
        uordblks: fit(now.uordblks),
        fordblks: fit(now.fordblks),
        ..Info::default()
    }
}
