//! Memory for handles in C: regions that have lane 0 only.
//!
//! The C library's malloc may keep the memory of freed handles: one block in use behind them is
//! enough. Here it returns to the system, as that of per-CPU data does.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::Heap;
use crate::sys::fork;

static HANDLES: Heap = Heap::new(false);

/// Allocates memory for a handle. Its content is unspecified. Waits for the lock of the heap.
///
/// The size is at most 256 KiB, and the alignment at most a page. Returns `None` if there is no
/// memory.
pub fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    // This may precede the start of the library. Locks detect forks from here on.
    fork::init();
    let address = HANDLES.lock().allocate(layout.size(), layout.align()).ok()?;
    NonNull::new(address as *mut u8)
}

/// Frees the memory of a handle. Waits for the lock of the heap.
///
/// # Safety
///
/// The memory is from [`allocate`], and no thread uses it any more.
pub unsafe fn free(handle: NonNull<u8>) {
    HANDLES.free(handle.as_ptr() as usize);
}
