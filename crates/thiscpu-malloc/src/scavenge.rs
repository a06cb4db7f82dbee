//! Returning memory that classes keep but no longer use, to slabs and to the system.
//!
//! A class keeps free blocks in lanes and barns for its next allocations: up to 16 MiB for each
//! CPU. A program that has moved on to other sizes does not allocate them again, and if they were
//! freed in random order, each of them may hold a slab of 64 KiB. No thread of the allocator's own
//! could return them, so allocations that miss their lane do it, one of them every ten
//! milliseconds:
//!
//! - While memory grows, classes that have traded nothing for a tenth of a second are emptied, and
//!   others return the blocks that they have not needed.
//! - At any time, a class that has traded nothing for a second is emptied: one class per run.
//!
//! A run flushes the lanes of all such classes with one fence, and only by `membarrier`: in a
//! sandbox, malloc must not make other system calls. Their blocks go to the barns, from there some
//! sheaves per run go to the slabs, and a mebibyte of free pages goes to the system. So no call
//! takes long, unless barns have no room: then blocks go to their slabs at once.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use thiscpu::__internal::{self, Lock, save_errno};

use crate::classes::{CLASS_COUNT, size_of_class};
use crate::heap::{self, flush_lanes, objects};

/// The time between two runs.
const INTERVAL_NS: u64 = 10_000_000;
/// A class that is idle for this long is emptied while memory grows.
///
/// It is ten runs, so that a program that alternates between sizes keeps its blocks for the next
/// turn. With one run in its place, such programs took twice as long.
const IDLE_GROWING_NS: u64 = 100_000_000;
/// A class that is idle for this long is emptied in any case.
///
/// Idle classes trade nothing, but may use their lanes; then emptying costs them a trade.
const IDLE_ALWAYS_NS: u64 = 1_000_000_000;
/// Memory counts as grown after growing by a sixteenth, and at least by this much.
const GROWTH_STEP_BYTES_MIN: usize = 1 << 20;
/// The unused bytes that a busy class may keep, or a sheaf if that is more.
///
/// Sheaves are returned as a whole.
const UNUSED_BYTES_KEPT: usize = 128 << 10;
/// The most sheaves that one run returns to slabs, of up to 1,020 blocks each.
const SHEAVES_PER_RUN_MAX: usize = 32;

// Relaxed, for all of these: the lock orders what runs access; `scavenge_if_due` reads an estimate.

static LOCK: Lock = Lock::new();
/// When the next run is due, by the coarse clock.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// Memory of this size counts as grown.
static GROWTH_BYTES: AtomicUsize = AtomicUsize::new(GROWTH_STEP_BYTES_MIN);

/// What the last run saw of a class.
struct ClassActivity {
    trades: AtomicU64,
    /// The time since when it has traded nothing.
    idle_since_ns: AtomicU64,
    /// Whether its lanes were emptied since then.
    is_emptied: AtomicBool,
}

static ACTIVITY: [ClassActivity; CLASS_COUNT] = [const {
    ClassActivity {
        trades: AtomicU64::new(0),
        idle_since_ns: AtomicU64::new(0),
        is_emptied: AtomicBool::new(false),
    }
}; CLASS_COUNT];

/// Returns unused memory if a run is due. Otherwise costs a read of the coarse clock.
pub(crate) fn scavenge_if_due() {
    let now_ns = __internal::coarse_time();
    if now_ns >= NEXT_NS.load(Relaxed) {
        scavenge(now_ns);
    }
}

#[cold]
fn scavenge(now_ns: u64) {
    // If another thread runs, that is enough.
    let Some(_guard) = LOCK.try_lock() else { return };
    NEXT_NS.store(now_ns + INTERVAL_NS, Relaxed);
    let has_grown = has_grown();
    flush_idle_lanes(now_ns, has_grown);
    flush_unused_sheaves(has_grown);
    __internal::purge_some_if_due();
    __internal::large::look_if_due();
}

/// Returns whether memory has grown by a step above its minimum since it last had.
fn has_grown() -> bool {
    let [_, _, bytes] = __internal::memory();
    let (due, next) = (GROWTH_BYTES.load(Relaxed), bytes + (bytes / 16).max(GROWTH_STEP_BYTES_MIN));
    let has_grown = bytes >= due;
    GROWTH_BYTES.store(if has_grown { next } else { next.min(due) }, Relaxed);
    has_grown
}

/// Moves the blocks in lanes of idle classes to barns.
fn flush_idle_lanes(now_ns: u64, has_grown: bool) {
    let mut is_first = true;
    let is_idle: [bool; CLASS_COUNT] = core::array::from_fn(|class| {
        let Some(idle_ns) = ACTIVITY[class].update(objects(class).trades(), now_ns) else {
            return false;
        };
        let is_long_idle = idle_ns >= IDLE_ALWAYS_NS && is_first;
        is_first &= !is_long_idle;
        (has_grown && idle_ns >= IDLE_GROWING_NS) || is_long_idle
    });
    if is_idle.contains(&true) {
        flush_lanes(&is_idle);
    }
    for class in (0..CLASS_COUNT).filter(|&class| is_idle[class]) {
        ACTIVITY[class].set_emptied(objects(class).trades());
        // The blocks from its lanes count as unused too.
        objects(class).begin_window();
    }
}

/// Moves unused sheaves from barns to slabs. Emptied classes may need several runs.
fn flush_unused_sheaves(has_grown: bool) {
    let mut left = SHEAVES_PER_RUN_MAX;
    for (class, activity) in ACTIVITY.iter().enumerate() {
        let objects = objects(class);
        let unused = objects.unused_bytes();
        let is_emptied = activity.is_emptied.load(Relaxed);
        let kept = UNUSED_BYTES_KEPT.max(objects.sheaf_capacity() * size_of_class(class));
        if unused > 0 && (is_emptied || (has_grown && unused > kept)) {
            left -= objects.flush_unused(left);
        }
        objects.begin_window();
    }
}

impl ClassActivity {
    /// Records the number of trades so far, and returns for how long the class has been idle.
    ///
    /// Returns `None` if it has traded since the last run, was never used, or is emptied already.
    fn update(&self, trades: u64, now_ns: u64) -> Option<u64> {
        if self.trades.load(Relaxed) != trades {
            self.trades.store(trades, Relaxed);
            self.idle_since_ns.store(now_ns, Relaxed);
            self.is_emptied.store(false, Relaxed);
            return None;
        }
        let can_be_emptied = trades != 0 && !self.is_emptied.load(Relaxed);
        can_be_emptied.then(|| now_ns.saturating_sub(self.idle_since_ns.load(Relaxed)))
    }

    /// Records that the class was emptied. `trades` includes those that emptying it took.
    fn set_emptied(&self, trades: u64) {
        self.trades.store(trades, Relaxed);
        self.is_emptied.store(true, Relaxed);
    }
}

/// Returns all free memory to the system; the result is whether there was any.
///
/// `_keep` is ignored: nothing is kept. Blocks the calling thread for a fence, and for the locks of
/// all classes.
pub fn trim(_keep: usize) -> bool {
    let _errno = save_errno();
    heap::shrink();
    __internal::purge() > 0
}
