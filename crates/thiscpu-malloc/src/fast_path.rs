//! Whether calls may take the fast and the gated path.
//!
//! Those paths do not count calls, do not guard every block, and do not check whether sections may
//! be entered. So both are disabled until sections are ready, and again once each call must be
//! counted or guarded.

use core::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::__internal::{self, HAS_DIRECT, Lock, tier_or_best};

use crate::classes::{
    CLASS_SIZE_MAX, MEDIUM_SIZE_MAX, SMALL_SIZE_MAX, cell_of_class, cell_of_medium, cell_of_small,
    large_class,
};
use crate::{guard, heap};

/// A set of the flags below.
///
/// [`COUNTING`], [`ALL_GUARDED`] and [`NOT_READY`] block the fast and the gated path; [`PROFILED`]
/// only diverts `malloc` from the fast path.
static FLAGS: AtomicU8 = AtomicU8::new(NOT_READY);
/// Calls are counted.
pub(crate) const COUNTING: u8 = 1;
/// A sample of the blocks that a lane has run out of is guarded.
pub(crate) const HARDENED: u8 = 2;
/// All blocks are guarded, for tests.
pub(crate) const ALL_GUARDED: u8 = 4;
/// Sections cannot be entered: not yet, or not at all.
const NOT_READY: u8 = 8;
/// Blocks are sampled for the heap profile.
pub(crate) const PROFILED: u8 = 16;

/// All small sizes are below this one, unless it is 0: then the paths are disabled.
///
/// So one comparison tells whether a size is small and the gated path is enabled.
static FAST_SIZE_LIMIT: AtomicUsize = AtomicUsize::new(0);
/// The fast path may allocate sizes below this one. It is 0 while `malloc` is diverted.
///
/// `free` does not look at it. Where direct sections exist, the direct table says whether they may
/// be entered, and so this word only diverts. Elsewhere it is also 0 while the paths are disabled.
pub static MALLOC_LIMIT: AtomicUsize =
    AtomicUsize::new(if HAS_DIRECT { SMALL_SIZE_MAX + 1 } else { 0 });
/// Held while flags and what follows from them change.
static UPDATE_LOCK: Lock = Lock::new();

/// Changes the flags, and enables or disables the paths accordingly.
fn update(change: impl FnOnce(u8) -> u8) {
    let _guard = UPDATE_LOCK.lock();
    // Relaxed: the lock orders changes; readers need no other memory with it.
    let flags = change(FLAGS.load(Relaxed));
    FLAGS.store(flags, Relaxed);
    let is_unblocked = is_unblocked(flags);
    __internal::disable_fast_free(!is_unblocked);
    heap::set_direct_enabled(is_unblocked);
    // Release: pairs with the Acquire in `gated_cell` and `is_enabled`, which imply that sections
    // are ready. A few calls may still pass after the paths were disabled. Last but for
    // `MALLOC_LIMIT`: `enable_when_ready` concludes from the two that all of this was done.
    FAST_SIZE_LIMIT.store(if is_unblocked { SMALL_SIZE_MAX + 1 } else { 0 }, Release);
    // Release: pairs with the Acquire in `small_gated_cell`.
    MALLOC_LIMIT.store(malloc_limit(flags), Release);
}

/// Returns what `MALLOC_LIMIT` is with these flags.
fn malloc_limit(flags: u8) -> usize {
    let may_be_fast = flags & PROFILED == 0 && (HAS_DIRECT || is_unblocked(flags));
    if may_be_fast { SMALL_SIZE_MAX + 1 } else { 0 }
}

/// Returns whether these flags allow the paths.
fn is_unblocked(flags: u8) -> bool {
    flags & !(HARDENED | PROFILED) == 0
}

fn set_flag(flag: u8) {
    update(|flags| flags | flag);
}

/// Returns whether a flag is set.
pub(crate) fn has_flag(flag: u8) -> bool {
    // Relaxed: a call that runs while a flag is set may see either value.
    FLAGS.load(Relaxed) & flag != 0
}

/// Enables the paths if nothing blocks them any more.
pub(crate) fn enable_when_ready() {
    if has_flag(NOT_READY) && __internal::sections_are_ready() {
        update(|flags| flags & !NOT_READY);
    }
    // A fork may have come while another thread of the parent was in `update`: then the child
    // finds flags and paths that disagree.
    let flags = FLAGS.load(Relaxed);
    if is_unblocked(flags) != is_enabled() || malloc_limit(flags) != MALLOC_LIMIT.load(Relaxed) {
        update(|flags| flags);
    }
}

/// Counts calls from now on.
///
/// [`stats`](crate::stats()) and [`class_stats`](crate::class_stats) return the counts. Each call
/// then takes some nanoseconds longer. Counting cannot be disabled again.
pub fn enable_counting() {
    // Choose the tier leniently before anything is used that would insist on a valid one.
    tier_or_best();
    set_flag(COUNTING);
}

/// Returns whether calls are counted.
///
/// If not, the counts of calls are 0, and peaks cover only the moments at which
/// [`stats`](crate::stats()) was called. A load; may be called from anywhere.
pub fn is_counting() -> bool {
    has_flag(COUNTING)
}

/// Guards a sample of all blocks from now on, to detect use after free and overflows.
///
/// The guide's section on hardening says what is detected. Calls that find a block in their CPU's
/// lane are as fast as before. Returns whether blocks can be guarded: `false` if memory for that is
/// exhausted, or no signal handler can be installed.
pub fn enable_hardening() -> bool {
    tier_or_best();
    let is_ready = guard::enable();
    if is_ready {
        set_flag(HARDENED);
    }
    is_ready
}

/// Guards no further blocks. Blocks that are guarded stay so until they are freed.
pub(crate) fn disable_hardening() {
    update(|flags| flags & !HARDENED);
}

/// Diverts `malloc` from the fast path, so that the heap profile sees all calls, or does not.
pub(crate) fn set_profiled(is_profiled: bool) {
    tier_or_best();
    update(|flags| if is_profiled { flags | PROFILED } else { flags & !PROFILED });
}

/// Guards one block in `interval`, however long that takes, once hardening is enabled.
///
/// With 1, that includes blocks that lanes have.
pub fn sample_every(interval: u32) {
    guard::sample_every(interval);
    if interval == 1 {
        set_flag(ALL_GUARDED);
    }
}

/// Returns the cell for `size` if a direct section may serve it.
///
/// No flag is read: while one blocks the fast path, the direct table is empty.
#[inline(always)]
pub(crate) fn fast_cell(size: usize) -> Option<usize> {
    // Relaxed: a call that runs while the limit changes may see either value.
    (HAS_DIRECT && size < MALLOC_LIMIT.load(Relaxed)).then(|| cell_of_small(size))
}

/// Returns the cell for `size` if it is small and the gated path is enabled and not diverted.
///
/// Sections then are ready.
#[inline(always)]
pub(crate) fn small_gated_cell(size: usize) -> Option<usize> {
    // Acquire: pairs with the Release in `update`.
    (size < MALLOC_LIMIT.load(Acquire)).then(|| cell_of_small(size))
}

/// Returns the cell for a size that is small or medium, if the gated path is enabled.
///
/// Sections then are ready.
#[inline(always)]
pub(crate) fn gated_cell(size: usize) -> Option<usize> {
    // Acquire: pairs with the Release in `update`.
    match FAST_SIZE_LIMIT.load(Acquire) {
        limit if size < limit => Some(cell_of_small(size)),
        limit if limit != 0 && size <= MEDIUM_SIZE_MAX => Some(cell_of_medium(size)),
        _ => None,
    }
}

/// Returns the cell for a large size, if it has one and the gated path is enabled.
///
/// Sections then are ready.
#[inline(always)]
pub(crate) fn large_gated_cell(size: usize) -> Option<usize> {
    (size <= CLASS_SIZE_MAX && is_enabled()).then(|| cell_of_class(large_class(size)))
}

/// Returns whether the fast and the gated path are enabled; sections then are ready.
#[inline(always)]
pub(crate) fn is_enabled() -> bool {
    // Acquire: pairs with the Release in `update`.
    FAST_SIZE_LIMIT.load(Acquire) != 0
}
