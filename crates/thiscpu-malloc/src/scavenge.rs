//! What classes keep that is not used any more: it goes back to the slabs, which serve other sizes then, or the system.
//!
//! A class keeps free blocks in lanes and stocks for whoever allocates next, up to 16 MiB for each CPU. A program that has gone over to blocks of
//! another size does not ask for them, and where they were freed in random order each of them holds a slab of 64 KiB. There is no thread that
//! could look after them; so every ten milliseconds one of the calls that did not find what they wanted does:
//!
//! - while memory grows, classes are emptied that have traded nothing for a tenth of a second, and others give back what they have not needed;
//! - at any time a class is emptied that has traded nothing for a second, one a look.
//!
//! Lanes are emptied with one fence for all classes, and by membarrier only: in a sandbox a call of malloc must do nothing that nobody
//! expects. What they had goes to the stocks, and from there to the slabs, some sheaves a look, and the system
//! gets a mebibyte of free pages, so that no call takes long; but what stocks have no room for, or do not take, goes on at once.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use thiscpu::inside;
use thiscpu::probe::{Lock, save_errno};

use crate::classes::{CLASS_COUNT, size_of_class};
use crate::heap::{self, flush_lanes, objects};

/// How often it is looked at what was used since.
const INTERVAL_NS: u64 = 10_000_000;
/// What has traded nothing for so long is emptied when memory grows. Long enough that a program whose sizes take turns does not
/// give back what it needs at its next turn: with a look's interval in place of it such programs took twice as long.
const IDLE_GROWING_NS: u64 = 100_000_000;
/// What has traded nothing for so long is emptied in any case. Its lanes may have been used, which costs it a trade.
const IDLE_ALWAYS_NS: u64 = 1_000_000_000;
/// The least by which memory grows before anything is emptied for it; it is a sixteenth of it where that is more.
const GROWTH_STEP_BYTES_MIN: usize = 1 << 20;
/// How much a class that is used may keep and not have needed, or as much as a sheaf holds where that is more: it goes back whole.
const UNUSED_BYTES_KEPT: usize = 128 << 10;
/// So many sheaves go back to the slabs in one look at most, of up to 1,020 blocks each.
const SHEAVES_PER_CALL_MAX: usize = 32;

static LOCK: Lock = Lock::new();
/// When the next look is due, by the coarse clock.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// With how much memory it counts as grown.
static GROWTH_BYTES: AtomicUsize = AtomicUsize::new(GROWTH_STEP_BYTES_MIN);

/// What was seen of a class at the last look.
struct ClassActivity {
    trades: AtomicU64,
    /// Since when it has traded nothing.
    idle_since_ns: AtomicU64,
    /// Whether its lanes were emptied since.
    is_emptied: AtomicBool,
}

static ACTIVITY: [ClassActivity; CLASS_COUNT] = [const {
    ClassActivity {
        trades: AtomicU64::new(0),
        idle_since_ns: AtomicU64::new(0),
        is_emptied: AtomicBool::new(false),
    }
}; CLASS_COUNT];

// Relaxed, all of it: the lock orders what is under it, and the rest are estimates, on which nothing rests.

/// Looks whether classes are to be emptied, for calls that did not find what they wanted. Reads a clock, as a rule.
pub(crate) fn scavenge_if_due() {
    let now_ns = inside::coarse_time();
    if now_ns >= NEXT_NS.load(Relaxed) {
        scavenge(now_ns);
    }
}

#[cold]
fn scavenge(now_ns: u64) {
    // One at a time is enough.
    let Some(_guard) = LOCK.try_lock() else { return };
    NEXT_NS.store(now_ns + INTERVAL_NS, Relaxed);
    let has_grown = has_grown();
    flush_idle_lanes(now_ns, has_grown);
    flush_unused_sheaves(has_grown);
    inside::purge_some_if_many();
}

/// Whether memory has grown by a step beyond the least that it was since it last had.
fn has_grown() -> bool {
    let [_, _, bytes] = inside::memory();
    let (due, next) = (GROWTH_BYTES.load(Relaxed), bytes + (bytes / 16).max(GROWTH_STEP_BYTES_MIN));
    let has_grown = bytes >= due;
    GROWTH_BYTES.store(if has_grown { next } else { next.min(due) }, Relaxed);
    has_grown
}

/// Empties the lanes of classes that trade nothing.
fn flush_idle_lanes(now_ns: u64, has_grown: bool) {
    let mut is_first = true;
    let are_idle: [bool; CLASS_COUNT] = core::array::from_fn(|class| {
        let Some(idle_ns) = ACTIVITY[class].update(objects(class).trades(), now_ns) else {
            return false;
        };
        let is_long_idle = idle_ns >= IDLE_ALWAYS_NS && is_first;
        is_first &= !is_long_idle;
        (has_grown && idle_ns >= IDLE_GROWING_NS) || is_long_idle
    });
    if are_idle.contains(&true) {
        flush_lanes(&are_idle);
    }
    for class in (0..CLASS_COUNT).filter(|&class| are_idle[class]) {
        ACTIVITY[class].set_emptied(objects(class).trades());
        // What came from its lanes has been needed by nobody either.
        objects(class).begin_window();
    }
}

/// Gives what stocks keep in vain back to the slabs, as far as one look may; what is left of emptied classes is the next one's.
fn flush_unused_sheaves(has_grown: bool) {
    let mut left = SHEAVES_PER_CALL_MAX;
    for (class, seen) in ACTIVITY.iter().enumerate() {
        let objects = objects(class);
        let unused = objects.unused();
        let is_emptied = seen.is_emptied.load(Relaxed);
        let kept = UNUSED_BYTES_KEPT.max(objects.sheaf_capacity() * size_of_class(class));
        if unused > 0 && (is_emptied || (has_grown && unused > kept)) {
            left -= objects.give_back_unused(left);
        }
        objects.begin_window();
    }
}

impl ClassActivity {
    /// For how long the class has traded nothing, if it has traded something before, and was not emptied since.
    fn update(&self, trades: u64, now_ns: u64) -> Option<u64> {
        if self.trades.load(Relaxed) != trades {
            self.trades.store(trades, Relaxed);
            self.idle_since_ns.store(now_ns, Relaxed);
            self.is_emptied.store(false, Relaxed);
            return None;
        }
        let is_to_be_asked = trades != 0 && !self.is_emptied.load(Relaxed);
        is_to_be_asked.then(|| now_ns.saturating_sub(self.idle_since_ns.load(Relaxed)))
    }

    /// It was emptied, which has made that many trades of them.
    fn set_emptied(&self, trades: u64) {
        self.trades.store(trades, Relaxed);
        self.is_emptied.store(true, Relaxed);
    }
}

/// Gives what is free back to the system, whatever `_keep` says; whether anything was given back.
pub fn trim(_keep: usize) -> bool {
    let _errno = save_errno();
    heap::shrink();
    inside::purge() > 0
}
