//! What else is to be done than to find a block: counting, guarding. The short ways of malloc and free do none of that, and are
//! closed while it concerns every call; and until sections can be entered, which they take for granted.

use core::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::inside::{self, HAS_FRONT};
use thiscpu::probe::{Lock, tier_or_best};

use crate::classes::{LOOKED_UP, SIZE_MAX, cell_looked_up, larger_cell_looked_up};
use crate::{guard, heap};

/// What stands in the way of the short ways, a bit each.
static FLAGS: AtomicU8 = AtomicU8::new(NOT_READY);
/// Calls are counted.
pub(crate) const COUNTED: u8 = 1;
/// Some blocks are guarded, of those that a lane does not have at hand. Goes with the short ways.
pub(crate) const HARDENED: u8 = 2;
/// All blocks are, for tests.
pub(crate) const ALL_GUARDED: u8 = 4;
/// Sections cannot be entered: not yet, or not at all.
const NOT_READY: u8 = 8;

/// Smaller sizes are looked up as they are. 0 while something stands in the way: the short ways do not look for it themselves.
static FAST_SIZE_LIMIT: AtomicUsize = AtomicUsize::new(0);
/// Held by whoever changes what stands in the way.
static UPDATE_LOCK: Lock = Lock::new();

/// Changes what stands in the way, and opens or closes the short ways.
fn update(change: impl FnOnce(u8) -> u8) {
    let _guard = UPDATE_LOCK.lock();
    let flags = change(FLAGS.load(Relaxed));
    FLAGS.store(flags, Relaxed);
    let is_unblocked = is_unblocked(flags);
    inside::watch(!is_unblocked);
    heap::keep_from_front(!is_unblocked);
    // Release: pairs with the Acquire in `short_cell` and `is_enabled`; sections are ready. When it is closed, a few calls may come before.
    // Last, because `enable_when_ready` sees by it whether all of this was done.
    FAST_SIZE_LIMIT.store(if is_unblocked { LOOKED_UP + 1 } else { 0 }, Release);
}

/// Whether nothing stands in the way.
fn is_unblocked(flags: u8) -> bool {
    flags & !HARDENED == 0
}

fn set_flag(flag: u8) {
    update(|flags| flags | flag);
}

/// Opens the short ways if nothing stands in the way any more.
pub(crate) fn enable_when_ready() {
    if has_flag(NOT_READY) && inside::sections_are_ready() {
        update(|flags| flags & !NOT_READY);
    }
    // In a child that was forked while another thread turned them they are as they were before, or in between.
    if is_unblocked(FLAGS.load(Relaxed)) != is_enabled() {
        update(|flags| flags);
    }
}

/// Has every call counted from now on.
pub(crate) fn count_calls() {
    // Whatever the tier is, before the first use of anything.
    tier_or_best();
    set_flag(COUNTED);
}

/// Whether that is to be done.
pub(crate) fn has_flag(flag: u8) -> bool {
    FLAGS.load(Relaxed) & flag != 0
}

/// Has some blocks guarded from now on, against use after free and overflow: see the documentation's section on hardening. Whether
/// that can be done. Calls that find what they want in their CPU's lane do what they did before, and take as long.
pub fn enable_hardening() -> bool {
    tier_or_best();
    let is_ready = guard::enable();
    if is_ready {
        set_flag(HARDENED);
    }
    is_ready
}

/// Has one in `interval` blocks guarded whatever time that takes, as soon as any are; with 1, those that lanes have at hand too.
pub fn sample_every(interval: u32) {
    guard::sample_every(interval);
    if interval == 1 {
        set_flag(ALL_GUARDED);
    }
}

/// The cell of the class for a size of at most [`LOOKED_UP`] bytes, if it is one. By the front nothing stands in the way, because it is closed then.
#[inline(always)]
pub(crate) fn front_cell(size: usize) -> Option<usize> {
    (HAS_FRONT && size <= LOOKED_UP).then(|| cell_looked_up(size))
}

/// The cell of the class for a size of at most [`LOOKED_UP`] bytes, if its blocks can be had the short way: sections are ready then.
#[inline(always)]
pub(crate) fn short_cell(size: usize) -> Option<usize> {
    // Acquire: pairs with the Release in `update`.
    (size < FAST_SIZE_LIMIT.load(Acquire)).then(|| cell_looked_up(size))
}

/// The same for a size that is not of those.
#[inline(always)]
pub(crate) fn larger_short_cell(size: usize) -> Option<usize> {
    (is_enabled() && LOOKED_UP < size && size <= SIZE_MAX).then(|| larger_cell_looked_up(size))
}

/// Whether there are short ways.
#[inline(always)]
pub(crate) fn is_enabled() -> bool {
    // Acquire: as above.
    FAST_SIZE_LIMIT.load(Acquire) != 0
}
