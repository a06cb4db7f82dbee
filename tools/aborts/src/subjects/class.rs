//! A class of objects as `malloc` has them.

use std::alloc::Layout;

use thiscpu::__internal::{CELL_BYTES, Class, DirectMalloc, Group, Handle, Ready, Tag};

/// The number of words of an object: large enough for the smallest sheaves.
pub(super) const WORDS: usize = 128;
pub(super) const OBJECT: Layout = Layout::new::<[usize; WORDS]>();
/// Not the first cell, so that it can be the tag.
pub(super) const CELL: usize = CELL_BYTES;

// SAFETY: this is the only group with the malloc table; the program's allocator is not
// thiscpu-malloc.
pub(super) static GROUP: Group = unsafe { Group::for_malloc(2) };
pub(super) static CLASS: Class = Class::new(OBJECT.size(), OBJECT.align(), CELL as Tag);

/// Returns the class, with sections that check everything.
pub(super) fn checked() -> Handle<'static> {
    GROUP.handle(&CLASS, CELL)
}

/// Allocations before the end of a lane's countdown, for calls that are not to find it.
pub(super) const FAR: u32 = 1 << 20;

/// Restarts the countdown of the calling thread's lane, with `calls` allocations.
fn restart(calls: u32) {
    if let Some(countdown) = GROUP.countdown() {
        countdown.restart(calls, 0);
    }
}

/// Returns the class, with sections that need no check for readiness.
///
/// The lane's countdown has `calls` allocations left.
pub(super) fn ready(calls: u32) -> Handle<'static, Ready> {
    restart(calls);
    assert!(thiscpu::__internal::sections_are_ready(), "this tier has sections");
    // SAFETY: sections are ready, as was just asserted, and stay so.
    unsafe { GROUP.ready(&CLASS, CELL) }
}

/// Returns the class, with direct sections, enabled for the calling thread.
pub(super) fn direct(calls: u32) -> Handle<'static, DirectMalloc> {
    enable(calls);
    // SAFETY: `GROUP` is the only group with the malloc table.
    unsafe { GROUP.direct_malloc(&CLASS, CELL) }
}

/// Enables direct sections for the calling thread, as the gated path does.
///
/// The lane's countdown has `calls` allocations left.
pub(super) fn enable(calls: u32) {
    restart(calls);
    GROUP.enable_direct();
}
