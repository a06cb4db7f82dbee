//! Blocks that are allocated: small ones from their class, others from runs of units.
//!
//! Each call has a short way, which is the lane's, and goes a longer one where that does not do. What is rare, guarding, is looked
//! for on the longer ones only.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiscpu::Tier;
use thiscpu::inside::{self, Front, HAS_FRONT, Handle, Ready, large};
use thiscpu::probe::{Lock, save_errno, tier_or_best};

use crate::classes::{COUNT, SIZE_MAX, class_of, size_of_class};
use crate::fast_path::{
    ALL_GUARDED, COUNTED, HARDENED, enable_when_ready, front_cell, has_flag, larger_short_cell,
    short_cell,
};
use crate::guard;
use crate::heap::{self, objects, objects_at_front, objects_ready_at};
use crate::scavenge;
use crate::stats;

/// The alignment of blocks for which none is asked for.
fn default_align(size: usize) -> usize {
    if size > 8 { 16 } else { 8 }
}

/// The objects for a size, if they can be had the shortest way there may be.
#[inline(always)]
fn objects_in_front(size: usize) -> Option<Handle<'static, Front>> {
    front_cell(size).map(objects_at_front)
}

/// The same the next one, which does not take the thread's word for where it is registered, and asks the gate.
#[inline(always)]
fn objects_at_hand(size: usize) -> Option<Handle<'static, Ready>> {
    // SAFETY: the short ways are opened when sections are ready.
    short_cell(size).map(|cell| unsafe { objects_ready_at(cell) })
}

/// The same for sizes that are not of those.
#[inline(always)]
fn larger_objects_at_hand(size: usize) -> Option<Handle<'static, Ready>> {
    // SAFETY: as above.
    larger_short_cell(size).map(|cell| unsafe { objects_ready_at(cell) })
}

/// A block of at least `size` bytes, aligned to 16, or to 8 if it has no more than that. `None` if there is no memory.
#[inline(always)]
pub fn allocate(size: usize) -> Option<NonNull<u8>> {
    match objects_in_front(size) {
        Some(objects) => objects.alloc_or(|| allocate_farther(size)),
        None if HAS_FRONT => allocate_farther(size),
        None => match objects_at_hand(size) {
            Some(objects) => objects.alloc_or(|| allocate_slowly(size)),
            None => allocate_farther(size),
        },
    }
}

/// The same, if this CPU's lane has one at hand; if not, [`allocate_near`] is to be asked, and then [`allocate_far`]. For callers that have
/// something to do where there is no memory: so the way to it can be out of their line. Where there is a front they begin with
/// [`define_malloc`](crate::define_malloc).
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn allocate_at_hand(size: usize) -> Option<NonNull<u8>> {
    objects_at_hand(size)?.alloc_or(|| None)
}

/// The same for what is larger than a kibibyte, and has a class of its own all the same, and for threads that may not take the shortest way: for who
/// was told nothing by that. Two functions, so that the shortest way is in one line.
#[inline(always)]
pub fn allocate_near(size: usize) -> Option<NonNull<u8>> {
    if front_cell(size).is_some() {
        return allocate_past_front(size);
    }
    larger_objects_at_hand(size)?.alloc_or(|| None)
}

/// The same for who was told nothing by those: `None` if there is no memory.
pub fn allocate_far(size: usize) -> Option<NonNull<u8>> {
    match short_cell(size).or_else(|| larger_short_cell(size)) {
        Some(_) => allocate_slowly(size),
        None => allocate_the_long_way(size),
    }
}

#[inline(never)]
extern "C" fn allocate_past_front(size: usize) -> Option<NonNull<u8>> {
    heap::come_near();
    objects_at_hand(size)?.alloc_or(|| None)
}

// The long ways cannot unwind, so that the short ones end with a jump to them.

#[cold]
#[inline(never)]
extern "C" fn allocate_slowly(size: usize) -> Option<NonNull<u8>> {
    allocate_from_behind(class_of(size), size, default_align(size))
}

#[inline(never)]
extern "C" fn allocate_farther(size: usize) -> Option<NonNull<u8>> {
    if front_cell(size).is_some() {
        heap::come_near();
    }
    match objects_at_hand(size).or_else(|| larger_objects_at_hand(size)) {
        Some(objects) => objects.alloc_or(|| allocate_slowly(size)),
        None => allocate_the_long_way(size),
    }
}

#[inline(never)]
extern "C" fn allocate_the_long_way(size: usize) -> Option<NonNull<u8>> {
    if size > SIZE_MAX {
        return allocate_large(large::allocate, size, 1);
    }
    allocate_of(class_of(size), size, default_align(size))
}

/// A block of a class, which has room for that.
fn allocate_of(class: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
    if !has_flag(COUNTED | ALL_GUARDED) {
        return objects(class).alloc_or(|| allocate_from_behind(class, size, align));
    }
    if has_flag(ALL_GUARDED)
        && let Some(block) = guard::allocate(size, align)
    {
        return Some(block);
    }
    let mut is_hit = true;
    let block = objects(class).alloc_or(|| {
        is_hit = false;
        allocate_from_behind(class, size, align)
    })?;
    if has_flag(COUNTED) && !guard::owns(block.as_ptr().addr()) {
        stats::count_allocation(class, is_hit);
    }
    Some(block)
}

/// A block of a class whose lane has none. One of many slow calls gets a guarded block.
#[cold]
#[inline(never)]
fn allocate_from_behind(class: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
    let _errno = save_errno();
    // Before the first use of anything else; a load from then on.
    let tier = tier_or_best();
    enable_when_ready();
    let objects = objects(class);
    // Where there are no sections every call comes here.
    let calls = || if tier == Tier::Atomic { 1 } else { objects.sheaf_capacity() };
    if has_flag(HARDENED)
        && guard::wants(size, align, calls())
        && let Some(block) = guard::allocate(size, align)
    {
        guard::charge(|| rotate_samples(objects));
        return Some(block);
    }
    scavenge::scavenge_if_due();
    retry_after_shrink(size, || objects.alloc_slowly())
}

/// No more than so many: each goes back to its slab.
const MAX_ROTATED: usize = 252;

/// Lets another of the program's calls be the one that finds the lane empty next time. Left alone, a program that does the same
/// again and again would come here with the same call each time, and no other would ever be guarded.
fn rotate_samples(objects: Handle<'_>) {
    for _ in 0..guard::below(objects.sheaf_capacity().min(MAX_ROTATED)) {
        let Some(object) = objects.alloc_or(|| objects.alloc_slowly()) else { break };
        // SAFETY: it was just allocated, and nobody else knows it.
        unsafe { objects.free_to_slab(object) };
    }
}

/// What `allocate` returns; if that is nothing, once more after what lanes and stocks of all classes keep came back to the slabs, if
/// that can have been enough. Where it was not it is not tried again for some time: a program that asks for more than
/// there is may do so often.
fn retry_after_shrink<T>(size: usize, allocate: impl Fn() -> Option<T>) -> Option<T> {
    allocate().or_else(|| {
        let [_, _, system_bytes] = inside::memory();
        if size > system_bytes {
            return None;
        }
        let _one_at_a_time = SHRINK_LOCK.lock();
        // Who was before may have done it.
        allocate().or_else(|| {
            let now_ns = inside::coarse_time();
            // Relaxed, here and below: the lock orders it.
            if now_ns < NEXT_SHRINK_NS.load(Relaxed) {
                return None;
            }
            heap::shrink();
            let found = allocate();
            if found.is_none() {
                NEXT_SHRINK_NS.store(now_ns + SHRINK_INTERVAL_NS, Relaxed);
            }
            found
        })
    })
}

static SHRINK_LOCK: Lock = Lock::new();
/// When classes may be shrunk for want of memory again, by the coarse clock.
static NEXT_SHRINK_NS: AtomicU64 = AtomicU64::new(0);
const SHRINK_INTERVAL_NS: u64 = 10_000_000;

/// A large block, from one of the two functions for it.
fn allocate_large(
    allocate: fn(usize, usize) -> Option<usize>,
    size: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    let _errno = save_errno();
    // As C has it: the difference of two pointers into a block must fit.
    let size = (size <= isize::MAX as usize).then_some(size)?;
    tier_or_best();
    // With pages of 64 KiB some of these fit into one.
    if has_flag(HARDENED)
        && guard::wants(size, align, 1)
        && let Some(block) = guard::allocate(size, align)
    {
        return Some(block);
    }
    scavenge::scavenge_if_due();
    let address = retry_after_shrink(size, || allocate(size, align))?;
    stats::record_large(large::size(address).unwrap_or(0) as i64, 1);
    at(address)
}

fn at(address: usize) -> Option<NonNull<u8>> {
    NonNull::new(core::ptr::with_exposed_provenance_mut(address))
}

/// As [`allocate`], all zero. Pages that were never used are not touched.
#[inline]
pub fn allocate_zeroed(size: usize) -> Option<NonNull<u8>> {
    if size > SIZE_MAX {
        return allocate_large(large::allocate_zeroed, size, 1);
    }
    zero(allocate(size)?, size)
}

fn zero(block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: it is that large, and the caller's.
    unsafe { block.write_bytes(0, size) };
    Some(block)
}

/// A block of at least `size` bytes at a multiple of `align`, a power of two. `None` if there is no memory.
#[inline]
pub fn allocate_aligned(size: usize, align: usize) -> Option<NonNull<u8>> {
    debug_assert!(align.is_power_of_two());
    match align {
        ..=8 => allocate(size),
        // Only the smallest class is not aligned to it.
        16 if size > 8 => allocate(size),
        _ => allocate_more_aligned(size, align),
    }
}

/// As [`allocate_aligned`], all zero. Pages that were never used are not touched.
#[inline]
pub fn allocate_aligned_zeroed(size: usize, align: usize) -> Option<NonNull<u8>> {
    if size > SIZE_MAX || align > SIZE_MAX {
        return allocate_large(large::allocate_zeroed, size, align);
    }
    zero(allocate_aligned(size, align)?, size)
}

#[cold]
fn allocate_more_aligned(size: usize, align: usize) -> Option<NonNull<u8>> {
    let span = size.max(1).checked_next_multiple_of(align)?;
    if span <= SIZE_MAX {
        // A slab begins at a multiple of 64 KiB, and blocks follow each other.
        let fits = |class: &usize| size_of_class(*class).is_multiple_of(align);
        if let Some(class) = (class_of(span)..COUNT).find(fits) {
            return allocate_of(class, size, align);
        }
    }
    allocate_large(large::allocate, size, align)
}
