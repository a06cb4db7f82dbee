//! What classes keep that is not used any more: it goes back to the slabs while the program takes more memory from the system.
//!
//! A class keeps free blocks in lanes and stocks for whoever allocates next, up to 16 MiB for each CPU. A program that has gone over to blocks of
//! another size does not ask for them, and where they were freed in random order each of them holds a slab of 64 KiB. So every few
//! milliseconds, if memory has meanwhile grown beyond what it ever was, those classes are emptied that have traded nothing in that
//! time, or kept more than was needed. A program whose memory does not grow keeps what it has.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use thiscpu::inside;
use thiscpu::probe::Lock;

use crate::classes::COUNT;
use crate::heap::objects;

/// How often it is looked at what was used since.
const WINDOW_NS: u64 = 10_000_000;
/// The least that memory grows before anything is emptied; it is a sixteenth of it where that is more.
const STEP_BYTES: usize = 1 << 20;
/// How much a class may keep that it has not needed.
const UNUSED_BYTES: usize = 64 << 10;

static LOOKING: Lock = Lock::new();
/// When the next look is due, by the coarse clock.
static DUE_NS: AtomicU64 = AtomicU64::new(0);
/// With how much memory something is emptied.
static DUE_BYTES: AtomicUsize = AtomicUsize::new(STEP_BYTES);
/// What each class had traded at the last look.
static TRADED: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
/// With [`TRADED`]: it has been emptied since. There are never so many trades.
const EMPTIED: u64 = 1 << 63;

/// Looks whether classes are to be emptied, for calls that did not find what they wanted. Reads a clock, as a rule.
pub(crate) fn look_if_due() {
    // Relaxed, here and below: estimates, on which nothing rests.
    let now_ns = inside::coarse_time();
    if now_ns >= DUE_NS.load(Relaxed) {
        look(now_ns);
    }
}

#[cold]
fn look(now_ns: u64) {
    // One at a time is enough.
    let Some(_guard) = LOOKING.try_lock() else { return };
    DUE_NS.store(now_ns + WINDOW_NS, Relaxed);
    let [_, _, bytes] = inside::memory();
    let has_grown = bytes >= DUE_BYTES.load(Relaxed);
    if has_grown {
        DUE_BYTES.store(bytes + (bytes / 16).max(STEP_BYTES), Relaxed);
    }
    (0..COUNT).for_each(|class| look_at(class, has_grown));
}

/// Begins a new window for a class; empties it first, if it was not used in the last one and may be emptied.
fn look_at(class: usize, may_be_emptied: bool) {
    let (before, now) = (TRADED[class].load(Relaxed), objects(class).trades());
    let is_emptied = before == now | EMPTIED;
    let is_idle = before == now && now != 0;
    let keeps_too_much = objects(class).take_unused() > UNUSED_BYTES;
    let is_to_be_emptied = may_be_emptied && (is_idle || keeps_too_much);
    if is_to_be_emptied {
        objects(class).shrink();
    }
    TRADED[class].store(now | if is_emptied || is_to_be_emptied { EMPTIED } else { 0 }, Relaxed);
}
