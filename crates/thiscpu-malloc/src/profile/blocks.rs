//! Sampled blocks: where they lie, and how a free finds their records.
//!
//! A small one lies in a slab of a second set of classes, whose tags are negative. The fast path of
//! `free` takes only positive tags, so it leaves these to the slow path. The number of the record
//! is in the last 8 bytes of the block's place, behind what the program may use. Before it is its
//! check, which a write past the block's end reaches first.
//!
//! A larger one is a run of chunks, whatever class its size has. The number of its record is in the
//! metadata of the run.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use thiscpu::__internal::{large, save_errno, tier_or_best, write_line};

use super::stacks::{FRAMES_MAX, find_or_add};
use super::weight::weight;
use super::{countdown, peak, records};
use crate::classes::{FIRST_LARGE, MEDIUM_SIZE_MAX, class_of, size_of_class};
use crate::fast_path::is_counting;
use crate::heap::sampled_objects;
use crate::{random, stack, stats};

/// The bytes behind a block: the check, and its record's number.
const FOOTER_BYTES: usize = size_of::<u64>();

/// Blocks that were sampled, but for which there was no memory for a record.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of samples for which there was no memory.
pub(super) fn dropped() -> u64 {
    DROPPED.load(Relaxed)
}

/// Allocates a block and samples it; `None` if there is no memory for it here.
///
/// It is a run of chunks if no class up to 32 KiB has room for the footer.
#[cold]
#[inline(never)]
pub(crate) fn sample(size: usize, align: usize) -> Option<NonNull<u8>> {
    let _errno = save_errno();
    tier_or_best();
    let Some(class) = class_for(size, align) else {
        return sample_run(large::allocate, size, align);
    };
    let Some(block) = sampled_objects(class).alloc_from_slab() else {
        DROPPED.fetch_add(1, Relaxed);
        return None;
    };
    let address = block.as_ptr().addr();
    let number = record(address, size).unwrap_or(0);
    // SAFETY: the block has just been allocated, and its last 8 bytes are behind what is usable.
    // They are aligned, because sizes of classes are multiples of 8.
    unsafe { footer(block, class).write([check(address, number), number]) };
    if is_counting() {
        stats::count_allocation(class, false);
    }
    Some(block)
}

/// Allocates a run of chunks by one of the two functions for that, and samples it.
#[cold]
#[inline(never)]
pub(crate) fn sample_run(
    allocate: fn(usize, usize) -> Option<usize>,
    size: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    let _errno = save_errno();
    tier_or_best();
    let address = allocate(size, align)?;
    stats::record_large(large::size(address).unwrap_or(0) as i64, 1);
    sample_large(address, size);
    NonNull::new(core::ptr::with_exposed_provenance_mut(address))
}

/// Samples a run of chunks that was just allocated for `size` bytes.
#[cold]
#[inline(never)]
pub(crate) fn sample_large(address: usize, size: usize) {
    let _errno = save_errno();
    if let Some(number) = record(address, size)
        && !large::set_sample(address, number)
    {
        release(number, address);
    }
}

/// Returns the class of the smallest blocks that hold `size` bytes and the footer at `align`.
fn class_for(size: usize, align: usize) -> Option<usize> {
    let span = (size + FOOTER_BYTES).checked_next_multiple_of(align)?;
    if span > MEDIUM_SIZE_MAX {
        return None;
    }
    (class_of(span)..FIRST_LARGE).find(|&class| size_of_class(class).is_multiple_of(align))
}

/// Records a block with the stack of this call; returns the number of its record.
fn record(address: usize, size: usize) -> Option<u32> {
    let weight = weight(size, countdown::interval_of_sample());
    let mut frames = [0; FRAMES_MAX];
    let depth = stack::capture_into(&mut frames);
    let entry = find_or_add(&frames[..depth]);
    let number = records::take(address, entry, weight);
    match number {
        Some(_) => {
            entry.count_allocated(weight);
            peak::grow(weight.bytes);
        }
        None => drop(DROPPED.fetch_add(1, Relaxed)),
    }
    number
}

/// Gives up the record of a block; returns false if the block has none of that number.
fn release(number: u32, address: usize) -> bool {
    let released = records::release(number, address);
    if let Some((entry, weight)) = released {
        entry.count_freed(weight);
        peak::shrink(weight.bytes);
    }
    released.is_some()
}

fn footer(block: NonNull<u8>, class: usize) -> NonNull<[u32; 2]> {
    // SAFETY: each slot of a class has at least 8 bytes.
    unsafe { block.byte_add(size_of_class(class) - FOOTER_BYTES) }.cast()
}

/// Returns the check of a record's number, which depends on the block's address as well.
fn check(address: usize, number: u32) -> u32 {
    static KEY: AtomicU64 = AtomicU64::new(0);
    let mut key = KEY.load(Relaxed);
    if key == 0 {
        let new = random::next() | 1;
        // Relaxed: all threads use the number that was stored first.
        key = KEY.compare_exchange(0, new, Relaxed, Relaxed).map_or_else(|first| first, |_| new);
    }
    let mixed = address as u64 ^ key ^ (u64::from(number) << 32);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Frees a sampled small block of `class`; aborts if no block in use begins at its address.
///
/// # Safety
///
/// The caller guarantees what [`free`](crate::free()) requires.
#[cold]
#[inline(never)]
pub(crate) unsafe fn free_sampled(block: NonNull<u8>, class: usize) {
    let _errno = save_errno();
    let objects = sampled_objects(class);
    objects.check(block);
    let address = block.as_ptr().addr();
    // SAFETY: `check` has found a place of this class at the address, which is aligned to 8.
    let [found, number] = unsafe { footer(block, class).read() };
    if found == check(address, number) {
        // A block that was freed before has no record any more; its slab detects that below.
        release(number, address);
    } else {
        warn_overwritten(address);
    }
    if is_counting() {
        stats::count_free(class, false);
    }
    // SAFETY: the caller guarantees that the block is of this class and not used any more.
    unsafe { objects.free_to_slab(block) };
}

/// Says, once, that the program has written past a block. Its record is lost: it stays live.
fn warn_overwritten(address: usize) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Relaxed) {
        write_line(
            libc::STDERR_FILENO,
            format_args!(
                "thiscpu: warning: the program has written past the end of the block at \
                 {address:#x}; the heap profile shows that block as live"
            ),
        );
    }
}

/// Gives up the record of a large block, if it was sampled, before the block is freed.
pub(crate) fn forget_large(address: usize) {
    let number = large::take_sample(address);
    if number != 0 {
        release(number, address);
    }
}

/// Counts a large block that was resized without copying as freed, and as a new one.
pub(crate) fn resized_large(from: usize, number: u32, to: usize, size: usize) {
    if number != 0 {
        release(number, from);
    }
    if super::is_on() && super::is_due(size) {
        sample_large(to, size);
    }
}

/// Returns the number of usable bytes of a sampled small block.
pub(crate) fn usable_size(block: NonNull<u8>, class: usize) -> usize {
    sampled_objects(class).check(block);
    size_of_class(class) - FOOTER_BYTES
}
