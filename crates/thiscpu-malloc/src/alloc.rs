//! Allocation, as one chain.
//!
//! ```text
//! allocate      the fast path, inlined: a direct section
//!  alloc_gated   medium sizes: a direct section; then enables those, and enters one by the gate
//!   alloc_cold    ticks, and tries again, or chooses:
//!    alloc_refill    trades sheaves with the barn, or guards a block; the class is known
//!    alloc_general   runs of chunks; all calls while blocks are counted or all guarded
//! ```
//!
//! `libthiscpu_malloc.so` enters the same chain: its `malloc` is the fast path in assembly, see
//! [`export`](crate::export). The class is looked up once, by `alloc_gated`, and passed on.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiscpu::__internal::{self, HAS_DIRECT, Handle, Lock, large, save_errno, tier_or_best};
use thiscpu::Tier;

use crate::classes::{
    CLASS_ALIGN_MAX, CLASS_COUNT, CLASS_SIZE_MAX, MEDIUM_SIZE_MAX, SMALL_SIZE_MAX, cell_of_small,
    class_of, class_of_cell, is_large, size_of_class,
};
use crate::fast_path::{
    ALL_GUARDED, COUNTING, HARDENED, enable_when_ready, fast_cell, gated_cell, has_flag,
    is_counting, small_gated_cell,
};
use crate::heap::{self, cell_of, direct_objects_at, gated_objects_at, objects};
use crate::{decay, guard, large_class, profile, random, stats};

/// A cell of no class: what [`alloc_cold`] gets if none was looked up.
const NO_CELL: usize = 0;

/// Allocates a block of at least `size` bytes. Returns `None` if memory is exhausted.
///
/// The block is aligned to 16 bytes, or to 8 if `size` is at most 8. A size of 0 is allowed; the
/// block's address is unique like any other.
#[inline(always)]
pub fn allocate(size: usize) -> Option<NonNull<u8>> {
    alloc_fast_or(size, |size| alloc_gated(size))
}

/// Takes a small block from this CPU's lane by the shortest section, or calls `miss`.
#[inline(always)]
pub fn alloc_fast_or(
    size: usize,
    miss: impl Fn(usize) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    if HAS_DIRECT {
        match fast_cell(size) {
            Some(cell) => direct_objects_at(cell).alloc_or(|| miss(size)),
            None => miss(size),
        }
    } else {
        match small_gated_cell(size) {
            // SAFETY: the gated path is enabled, so sections are ready.
            Some(cell) => unsafe { gated_objects_at(cell) }.alloc_or(|| miss(size)),
            None => miss(size),
        }
    }
}

/// Takes a block from this CPU's lane by the gate, or calls `cold(size, cell)`.
///
/// For callers that the fast path did not serve: it missed, the thread or CPU has not enabled
/// direct sections yet, or the size is a medium one. `is_counted` says that the heap profile need
/// not count the call. If `cold` is a function that cannot unwind or whose caller may, it is called
/// by a jump.
#[inline(always)]
pub(crate) fn alloc_gated_or(
    size: usize,
    is_counted: bool,
    cold: impl Fn(usize, usize) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    if !is_counted
        && profile::is_on()
        && let Some(block) = alloc_profiled(size)
    {
        return Some(block);
    }
    if size > MEDIUM_SIZE_MAX {
        large_class::alloc_or(size, cold)
    } else if HAS_DIRECT && size > SMALL_SIZE_MAX {
        alloc_medium_or(size, cold)
    } else {
        alloc_by_gate_or(size, cold)
    }
}

/// Takes a medium block from this CPU's lane by a direct section, or else by the gate.
///
/// The fast path has no table of medium sizes. A function of its own, like the next one, because
/// its callers would otherwise need a frame for their other sizes.
#[inline(never)]
fn alloc_medium_or(
    size: usize,
    cold: impl Fn(usize, usize) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    match gated_cell(size) {
        Some(cell) => direct_objects_at(cell).alloc_or(|| alloc_by_gate_or(size, cold)),
        None => cold(size, NO_CELL),
    }
}

/// Takes a block of no large class by the gate, after a direct section, or calls `cold`.
#[inline(never)]
fn alloc_by_gate_or(
    size: usize,
    cold: impl Fn(usize, usize) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    if HAS_DIRECT {
        decay::prepare_direct();
    }
    match gated_cell(size) {
        // Without direct sections, the fast path has already entered this one for small sizes.
        Some(cell) if HAS_DIRECT || size > SMALL_SIZE_MAX => {
            // SAFETY: the gated path is enabled, so sections are ready.
            unsafe { gated_objects_at(cell) }.alloc_or(|| cold(size, cell))
        }
        Some(cell) => cold(size, cell),
        None => cold(size, NO_CELL),
    }
}

/// Counts a call for the heap profile: samples the block, or takes it from this CPU's lane.
///
/// Returns `None` if the lane has none, and for large classes. [`alloc_run_by`] counts runs.
#[inline(never)]
fn alloc_profiled(size: usize) -> Option<NonNull<u8>> {
    if size > CLASS_SIZE_MAX {
        return None;
    }
    if profile::is_due(size)
        && let Some(block) = profile::sample(size, default_align(size))
    {
        return Some(block);
    }
    if size > SMALL_SIZE_MAX {
        return None;
    }
    if HAS_DIRECT {
        return direct_objects_at(cell_of_small(size)).alloc_or(|| None);
    }
    let cell = gated_cell(size)?;
    // SAFETY: the gated path is enabled, so sections are ready.
    unsafe { gated_objects_at(cell) }.alloc_or(|| None)
}

// These are `extern "C"`, so they cannot unwind, and their callers need no frame to call them.

#[inline(never)]
extern "C" fn alloc_gated(size: usize) -> Option<NonNull<u8>> {
    alloc_gated_or(size, false, |size, cell| alloc_cold(size, cell))
}

/// Allocates a block that the fast and the gated path did not find.
///
/// `cell` is the one for `size`, or 0.
#[cold]
#[inline(never)]
pub extern "C" fn alloc_cold(size: usize, cell: usize) -> Option<NonNull<u8>> {
    match cell {
        NO_CELL => alloc_general(size),
        cell => {
            let class = class_of_cell(cell);
            let refill = || alloc_refill(class, size, default_align(size));
            // Before a section by the gate, `alloc_by_gate_or` has ticked.
            let may_tick = !HAS_DIRECT || is_large(class);
            // If the countdown is why the section left, it finds a block now.
            let block = match may_tick && decay::tick_if_due() {
                // SAFETY: the caller found a cell, so that sections are ready.
                true => unsafe { gated_objects_at(cell) }.alloc_or(refill),
                false => refill(),
            };
            large_class::begin_if_large(class, block)
        }
    }
}

fn alloc_general(size: usize) -> Option<NonNull<u8>> {
    if size > CLASS_SIZE_MAX {
        return alloc_run(size, 1);
    }
    alloc_in_class(class_of(size), size, default_align(size))
}

/// Returns the alignment of a block for which the caller requests none.
fn default_align(size: usize) -> usize {
    if size > 8 { 16 } else { 8 }
}

/// Allocates a block of a class that fits size and alignment, whatever flags are set.
fn alloc_in_class(class: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
    large_class::begin_if_large(class, alloc_unbegun(class, size, align))
}

/// Allocates like [`alloc_in_class`], but a large block has not begun.
fn alloc_unbegun(class: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
    decay::count_call();
    if !has_flag(COUNTING | ALL_GUARDED) {
        return objects(class).alloc_or(|| alloc_refill(class, size, align));
    }
    if has_flag(ALL_GUARDED)
        && let Some(block) = guard::allocate(size, align)
    {
        return Some(block);
    }
    let mut is_hit = true;
    let block = objects(class).alloc_or(|| {
        is_hit = false;
        alloc_refill(class, size, align)
    })?;
    let address = block.as_ptr().addr();
    // A large block may be of another class than the one requested, or a run.
    let class = if is_large(class) { cell_of(address).map(class_of_cell) } else { Some(class) };
    if let Some(class) = class
        && is_counting()
        && !guard::owns(address)
    {
        stats::count_allocation(class, is_hit);
    }
    Some(block)
}

/// Allocates a block of a class whose lane is empty: from its backend, or a guarded one.
#[cold]
#[inline(never)]
fn alloc_refill(class: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
    let _errno = save_errno();
    // Choose the tier leniently before anything is used that would insist on a valid one. Later,
    // this is a load.
    let tier = tier_or_best();
    enable_when_ready();
    let objects = objects(class);
    // A call stands for those that its sheaf will serve; without sections, each call comes here.
    let calls = || if tier == Tier::Atomic { 1 } else { objects.sheaf_capacity() };
    if has_flag(HARDENED)
        && guard::wants(size, align, calls())
        && let Some(block) = guard::allocate(size, align)
    {
        guard::charge(|| rotate_samples(objects));
        return Some(block);
    }
    let near = || if is_large(class) { large_class::take_near(class, align) } else { None };
    // Unlike a trade, a swap or a block of another class leaves no unused memory behind. So both
    // count like a call that hits.
    if let Some(block) = objects.alloc_spare().or_else(near) {
        decay::count_call();
        return Some(block);
    }
    decay::slow_alloc();
    let block = retry_after_shrink(size, || objects.alloc_slow());
    heap::bound_lane(class);
    if block.is_none() && is_large(class) {
        // A slab of the class may need many chunks in a row, and a run needs the fewest.
        return alloc_uncounted_run(large::allocate, size, align);
    }
    block
}

/// The most blocks that [`rotate_samples`] moves: each goes back to its slab.
const MAX_ROTATED: usize = 252;

/// Moves a random number of blocks from the lane to their slabs.
///
/// So another one of the program's call sites finds the lane empty next time. Otherwise, in a
/// program that repeats itself, only one call site would ever get guarded blocks.
fn rotate_samples(objects: Handle<'_>) {
    for _ in 0..random::below(objects.sheaf_capacity().min(MAX_ROTATED)) {
        let Some(object) = objects.alloc_or(|| objects.alloc_slow()) else { break };
        // SAFETY: the object was just allocated from this class, and nothing else refers to it.
        unsafe { objects.free_to_slab(object) };
    }
}

/// Held while classes are shrunk because memory is short.
static SHRINK_LOCK: Lock = Lock::new();
/// When classes may be shrunk for that again, by the coarse clock.
static NEXT_SHRINK_NS: AtomicU64 = AtomicU64::new(0);
const SHRINK_INTERVAL_NS: u64 = 10_000_000;

/// Calls `allocate`, and if that fails, once more after shrinking all classes.
///
/// Classes are not shrunk if the request exceeds all of the heap. After a shrink that did not help,
/// none is tried for [`SHRINK_INTERVAL_NS`]: a program may often ask for more than there is.
fn retry_after_shrink<T>(size: usize, allocate: impl Fn() -> Option<T>) -> Option<T> {
    allocate().or_else(|| {
        let [_, _, system_bytes] = __internal::memory();
        if size > system_bytes {
            return None;
        }
        let _guard = SHRINK_LOCK.lock();
        // The previous holder of the lock may have shrunk them.
        allocate().or_else(|| {
            let now_ns = __internal::coarse_time();
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

/// Allocates a run of chunks, whatever the size is.
pub(crate) fn alloc_run(size: usize, align: usize) -> Option<NonNull<u8>> {
    alloc_run_by(large::allocate, size, align)
}

/// Allocates a run of chunks by one of the two functions for that, and maybe samples it.
fn alloc_run_by(
    allocate: fn(usize, usize) -> Option<usize>,
    size: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    let block = alloc_uncounted_run(allocate, size, align)?;
    let address = block.as_ptr().addr();
    if profile::is_on() && !guard::owns(address) && profile::is_due(size) {
        profile::sample_large(address, size);
    }
    Some(block)
}

/// Allocates a run of chunks that the heap profile does not count, or has counted.
fn alloc_uncounted_run(
    allocate: fn(usize, usize) -> Option<usize>,
    size: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    let _errno = save_errno();
    // C requires that the difference of two pointers into a block fits `ptrdiff_t`.
    let size = (size <= isize::MAX as usize).then_some(size)?;
    tier_or_best();
    // On machines with pages of 64 KiB, some runs fit a guarded page.
    if has_flag(HARDENED)
        && guard::wants(size, align, 1)
        && let Some(block) = guard::allocate(size, align)
    {
        return Some(block);
    }
    decay::slow_alloc();
    let address = retry_after_shrink(size, || allocate(size, align))?;
    stats::record_large(large::size(address).unwrap_or(0) as i64, 1);
    NonNull::new(core::ptr::with_exposed_provenance_mut(address))
}

/// Allocates like [`allocate`], with all bytes zero.
///
/// Of a block larger than 4 MiB, only pages that were used before are cleared. A block larger than
/// 32 KiB is not touched if no page of its slab was used before and it was never allocated.
#[inline]
pub fn allocate_zeroed(size: usize) -> Option<NonNull<u8>> {
    if size > MEDIUM_SIZE_MAX {
        return allocate_aligned_zeroed(size, 1);
    }
    zero(allocate(size)?, size)
}

fn zero(block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: the block was just allocated with at least `size` bytes, and nothing else uses it.
    unsafe { block.write_bytes(0, size) };
    Some(block)
}

/// Allocates a block of at least `size` bytes at a multiple of `align`, a power of two.
///
/// Returns `None` if memory is exhausted.
#[inline]
pub fn allocate_aligned(size: usize, align: usize) -> Option<NonNull<u8>> {
    debug_assert!(align.is_power_of_two());
    match align {
        ..=8 => allocate(size),
        // Only blocks of the smallest class are not aligned to 16 bytes.
        16 if size > 8 => allocate(size),
        _ => alloc_over_aligned(size, align),
    }
}

/// Allocates like [`allocate_aligned`], with all bytes zero.
///
/// Clears no more than [`allocate_zeroed`] does.
#[inline]
pub fn allocate_aligned_zeroed(size: usize, align: usize) -> Option<NonNull<u8>> {
    if size > MEDIUM_SIZE_MAX {
        return alloc_large_zeroed(size, align);
    }
    zero(allocate_aligned(size, align)?, size)
}

#[inline(never)]
fn alloc_large_zeroed(size: usize, align: usize) -> Option<NonNull<u8>> {
    let Some(class) = class_for(size, align) else {
        return alloc_run_by(large::allocate_zeroed, size, align);
    };
    let sample = || profile::sample_run(large::allocate_zeroed, size, align);
    if let Some(block) = alloc_sampled(size, sample) {
        return Some(block);
    }
    let block = alloc_unbegun(class, size, align.max(default_align(size)))?;
    if large_class::begin(block) { Some(block) } else { zero(block, size) }
}

#[cold]
fn alloc_over_aligned(size: usize, align: usize) -> Option<NonNull<u8>> {
    match class_for(size, align) {
        Some(class) => alloc_sampled(size, || profile::sample(size, align))
            .or_else(|| alloc_in_class(class, size, align)),
        None => alloc_run(size, align),
    }
}

/// Counts a call for the heap profile, and calls `sample` if its block is to be sampled.
#[inline]
fn alloc_sampled(size: usize, sample: impl Fn() -> Option<NonNull<u8>>) -> Option<NonNull<u8>> {
    if profile::is_on() && profile::is_due(size) { sample() } else { None }
}

/// Returns the smallest class whose blocks fit size and alignment, if there is one.
fn class_for(size: usize, align: usize) -> Option<usize> {
    let span = size.max(1).checked_next_multiple_of(align)?;
    if span > CLASS_SIZE_MAX || align > CLASS_ALIGN_MAX {
        return None;
    }
    // A slab begins at a multiple of 64 KiB and its blocks follow each other, so a class has the
    // alignment if its size is a multiple of it.
    (class_of(span)..CLASS_COUNT).find(|&class| size_of_class(class).is_multiple_of(align))
}
