//! The index pointer: a thread-local word that leads direct sections to the thread's lane index.
//!
//! Other sections add published offsets to the thread pointer, and check that the thread is
//! registered. A direct section loads this word instead, which is 4 less than the address of the
//! index in the thread's rseq area. Without the bits that tell `cpu_id` from `mm_cid`, the word is
//! the address of the area itself.
//!
//! | the word | the index |
//! |---|---|
//! | area + 20 | `mm_cid` |
//! | area + 0 | `cpu_id` |
//!
//! The word is 0, and direct sections are refused, until the thread is known to be registered. It
//! reads 0 even while the program is still being linked and thread-local variables have no values.
//!
//! Slow paths set the word, and `unregister_forever` clears it. `vfork::enter` clears it too, after
//! it has set the thread's vfork word; `set` then does nothing until the vfork word is restored.
//!
//! If another library ends a registration that it does not own, and lanes are indexed by `mm_cid`,
//! direct sections of that thread run unregistered. No library that shares the C library's
//! registration does that.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::area::{self, thread_local_offset};
use super::thread;

/// The bits in which pointers to the two fields differ.
const FIELD: usize = area::MM_CID - area::CPU_ID;
/// The mask that takes an index pointer to the address of its area.
pub const AREA_MASK: isize = -1 - FIELD as isize;
// The mask is exact because areas are multiples of 32 bytes.
const _: () = assert!(FIELD < 32);

global_asm!(
    ".pushsection .tbss, \"awT\", %nobits",
    ".balign 8",
    ".hidden __thiscpu_0_1_index_ptr",
    ".globl __thiscpu_0_1_index_ptr",
    ".type __thiscpu_0_1_index_ptr, %object",
    ".size __thiscpu_0_1_index_ptr, 8",
    "__thiscpu_0_1_index_ptr:",
    ".zero 8",
    ".popsection",
);

/// Returns the offset of this copy's index pointer from the thread pointer.
#[inline(always)]
pub(crate) fn offset() -> isize {
    thread_local_offset!("__thiscpu_0_1_index_ptr")
}

fn ptr() -> &'static AtomicUsize {
    ptr_at(offset())
}

/// Returns the index pointer of the copy of this library that has it at `offset`.
fn ptr_at(offset: isize) -> &'static AtomicUsize {
    // SAFETY: the offset leads to the word in this thread's static TLS, which lives as long as the
    // thread. The functions below use the reference on this thread only.
    unsafe { &*(area::thread_pointer().wrapping_add_signed(offset) as *const AtomicUsize) }
}

/// Returns whether this thread may enter direct sections.
pub(crate) fn is_set() -> bool {
    ptr().load(Relaxed) != 0
}

/// Returns the lane index that direct sections of this thread use, if it may enter them.
pub(crate) fn index() -> Option<usize> {
    match ptr().load(Relaxed) {
        0 => None,
        // SAFETY: the index lies 4 bytes on, in this thread's area, which lives as long as the
        // thread. The kernel writes it only while this thread is not running, so an atomic load by
        // this thread never sees half of a write.
        field => Some(unsafe { &*((field + 4) as *const AtomicU32) }.load(Relaxed) as usize),
    }
}

/// Lets this thread enter direct sections, if it is registered and has not given up sections.
///
/// Direct sections take the thread for registered from then on.
#[inline]
pub(crate) fn set() {
    if !is_set() && thread::is_registered() && !area::is_unregistered_forever() {
        ptr().store(thread::index_address() - 4, Relaxed);
    }
}

/// Refuses direct sections on this thread, until the pointer is set again.
pub(crate) fn clear() {
    ptr().store(0, Relaxed);
}

/// Refuses on this thread the direct sections of the copy with its index pointer at `offset`.
pub(super) fn clear_at(offset: isize) {
    ptr_at(offset).store(0, Relaxed);
}
