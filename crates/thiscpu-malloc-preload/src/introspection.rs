//! Questions about a block or the whole heap: malloc_usable_size, malloc_trim, mallinfo and others.
//!
//! glibc's numbers describe its own arenas. Fields that do not correspond to anything here are 0.

use core::ffi::{c_int, c_void};

use crate::c::block;
use crate::errno::keep_errno;
use crate::stats_table;

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    // SAFETY: the caller guarantees that the pointer is null or an allocated block.
    block(pointer).map_or(0, |block| unsafe { thiscpu_malloc::usable_size(block) })
}

/// Returns 1 if memory was returned to the system, else 0.
#[unsafe(no_mangle)]
extern "C" fn malloc_trim(keep: usize) -> c_int {
    keep_errno(|| thiscpu_malloc::trim(keep)).into()
}

/// Accepts and ignores all parameters: they tune glibc's arenas.
#[unsafe(no_mangle)]
extern "C" fn mallopt(_: c_int, _: c_int) -> c_int {
    1
}

/// Writes the table of statistics to standard error.
#[unsafe(no_mangle)]
extern "C" fn malloc_stats() {
    stats_table::print(libc::STDERR_FILENO);
}

/// glibc's `struct mallinfo2`. All fields are in bytes, except for numbers of blocks.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info<T> {
    /// Memory from the system, without large blocks.
    arena: T,
    /// The number of free blocks of size classes.
    ordblks: T,
    smblks: T,
    /// The number of large blocks.
    hblks: T,
    /// Memory in large blocks.
    hblkhd: T,
    usmblks: T,
    fsmblks: T,
    /// Memory in use, without large blocks.
    uordblks: T,
    /// Memory from the system that is not in use.
    fordblks: T,
    /// Memory that `malloc_trim` would return at least.
    keepcost: T,
}

#[unsafe(no_mangle)]
extern "C" fn mallinfo2() -> Info<usize> {
    let now = keep_errno(thiscpu_malloc::stats);
    let arena = now.system_bytes.saturating_sub(now.large_bytes);
    let used = now.allocated_bytes.saturating_sub(now.large_bytes);
    Info {
        arena,
        ordblks: now.free_blocks,
        hblks: now.large_blocks,
        hblkhd: now.large_bytes,
        uordblks: used,
        fordblks: arena.saturating_sub(used),
        keepcost: now.purgeable_bytes,
        ..Info::default()
    }
}

/// Returns the numbers of `mallinfo2` as `int`s, of which larger ones are cut to the largest.
#[unsafe(no_mangle)]
extern "C" fn mallinfo() -> Info<c_int> {
    let fit = |value| c_int::try_from(value).unwrap_or(c_int::MAX);
    let now = mallinfo2();
    Info {
        arena: fit(now.arena),
        ordblks: fit(now.ordblks),
        hblks: fit(now.hblks),
        hblkhd: fit(now.hblkhd),
        uordblks: fit(now.uordblks),
        fordblks: fit(now.fordblks),
        keepcost: fit(now.keepcost),
        ..Info::default()
    }
}
