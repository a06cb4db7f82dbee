//! Decay: returning memory that classes keep but no longer use, to slabs and to the system.
//!
//! A class keeps free blocks in lanes and barns for its next allocations: up to 16 MiB for each
//! CPU. A program that has moved on to other sizes does not allocate them again, and if they were
//! freed in random order, each of them may hold a slab of 64 KiB. So calls that their lane cannot
//! serve return them, one such call every ten milliseconds. While all calls are served, some of
//! them [tick](crate::decay) for this:
//!
//! - While memory grows, classes that have traded nothing for a tenth of a second are emptied, and
//!   others return the blocks that they have not needed since the last run.
//! - At any time, a class that has traded nothing for a second is emptied, and others return the
//!   blocks that no lane has needed for a second.
//! - Pages of free chunks go to the system, as the arena's rules for their age say.
//! - [Free pages](crate::free_pages) of slabs in use go to the system once their slab is idle.
//! - After a *pause* of a second, all of this is done at once, whatever its age. A call that leaves
//!   memory behind would have run this, so everything has been unused during the pause.
//!
//! A run flushes the lanes of all such classes with one fence, and only by `membarrier`: a sandbox
//! may kill a program for the other ways to fence. Their blocks go to the barns, and from there to
//! the slabs, as long as the run has time: see [`allowance`](crate::allowance). A call takes longer
//! only if barns have no room, because blocks then go to their slabs at once.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use thiscpu::__internal::{self, Lock, SlabPages, Window, save_errno};

use crate::allowance::{Allowance, SavedTime};
use crate::classes::{CLASS_COUNT, size_of_class};
use crate::free_pages;
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
/// So are blocks that no lane has needed for as long. Idle classes trade nothing, but may use their
/// lanes; then emptying costs them a trade.
const IDLE_ALWAYS_NS: u64 = 1_000_000_000;
/// The most classes that a run empties because they are idle for [`IDLE_ALWAYS_NS`].
const CLASSES_PER_RUN_MAX: usize = 16;
/// Memory counts as grown after growing by a sixteenth, and at least by this much.
const GROWTH_STEP_BYTES_MIN: usize = 1 << 20;
/// The unused bytes that a busy class may keep, or a sheaf if that is more.
///
/// Sheaves are returned as a whole.
const UNUSED_BYTES_KEPT: usize = 128 << 10;
/// The most calls of a lane before a [tick](crate::decay) while memory is pending.
pub(crate) const PENDING_CALLS_MAX: u32 = 128;
/// The mebibytes of free pages that a run may drop: the first even if it has no time left.
const PURGED_MIB_MIN: usize = 1;
const PURGED_MIB_MAX: usize = 8;

/// The most time that a run may take, because the call that does it waits.
const RUN_NS_MAX: u64 = 4_000_000;
/// The most time that a run may take if the one before was [`IDLE_ALWAYS_NS`] earlier.
const PAUSED_RUN_NS_MAX: u64 = 40_000_000;
/// The least time that a run may take while memory grows, whatever earlier runs took.
const GROWING_RUN_NS: u64 = 800_000;

// What the steps of a run take, by estimates.
const FENCE_NS: u64 = 30_000;
const CLASS_NS: u64 = 1_000;
const SHEAF_NS: u64 = 500;
const BLOCK_NS: u64 = 15;
const PURGED_MIB_NS: u64 = 50_000;
/// Of a KiB of pages of slabs in use: a system call may drop a single page.
const DROPPED_KIB_NS: u64 = 600;
/// Of a look at the descriptors of 64 MiB of slabs.
const WALK_NS: u64 = 20_000;
/// Of a look into a slab for free pages.
const SLAB_NS: u64 = 500;

// Relaxed, for all of these: the lock orders what runs access; other callers read estimates.

static LOCK: Lock = Lock::new();
/// When the next run is due, by the coarse clock.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// The time that runs have not used.
static SAVED_TIME: SavedTime = SavedTime::new();
/// When the long window began.
static LONG_SINCE_NS: AtomicU64 = AtomicU64::new(0);
/// Whether memory is kept that later runs may return; if outdated, a call ticks later.
static IS_PENDING: AtomicBool = AtomicBool::new(false);
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

/// Returns whether a later run may return memory; an estimate, for how often to ask for one.
pub(crate) fn may_return() -> bool {
    IS_PENDING.load(Relaxed)
}

/// Notes that a call may leave memory behind, so that the next call of each lane ticks.
pub(crate) fn note_pending() {
    if !IS_PENDING.load(Relaxed) {
        IS_PENDING.store(true, Relaxed);
        heap::lower_countdowns(0);
    }
}

/// Notes that a lane of a class got a sheaf for freed blocks.
///
/// That is no trade if the lane had none before. So an emptied class no longer counts as emptied.
pub(crate) fn note_freed(class: usize, now_ns: u64) {
    let activity = &ACTIVITY[class];
    if activity.is_emptied.load(Relaxed) {
        activity.idle_since_ns.store(now_ns, Relaxed);
        activity.is_emptied.store(false, Relaxed);
    }
}

/// Returns unused memory if a run is due. The caller holds no lock.
pub(crate) fn run_if_due(now_ns: u64) {
    if is_due(now_ns, NEXT_NS.load(Relaxed)) {
        scavenge(now_ns);
    }
}

/// Returns whether a run is due. The clock may have been set back, as in a restored process.
fn is_due(now_ns: u64, due_ns: u64) -> bool {
    now_ns >= due_ns || due_ns - now_ns > INTERVAL_NS
}

/// One run, and what it does.
struct Run {
    now_ns: u64,
    /// Since when no call has left memory behind: such a call runs this once it is due.
    quiet_since_ns: u64,
    has_grown: bool,
    time: Allowance,
}

#[cold]
fn scavenge(now_ns: u64) {
    // If another thread runs, that is enough.
    let Some(_guard) = LOCK.try_lock() else { return };
    let due_ns = NEXT_NS.load(Relaxed);
    // This thread may have been stopped since it read the clock, and others may have run meanwhile.
    if !is_due(now_ns, due_ns) {
        return;
    }
    NEXT_NS.store(now_ns + INTERVAL_NS, Relaxed);
    let mut run = Run::begin(now_ns, due_ns);
    run.flush_idle_lanes();
    run.flush_unused_sheaves();
    // Before pages of slabs in use, because free chunks are cheaper to return.
    run.purge();
    run.drop_free_pages();
    __internal::large::look_if_due();
    let is_pending = is_pending();
    IS_PENDING.store(is_pending, Relaxed);
    if is_pending {
        // Again, because a section may have undone it.
        heap::lower_countdowns(if run.is_after_pause() { 0 } else { PENDING_CALLS_MAX });
    }
    SAVED_TIME.end(run.time, __internal::coarse_time().saturating_sub(now_ns));
}

/// Returns whether memory has grown by a step above its minimum since it last had.
fn has_grown() -> bool {
    let [_, _, bytes] = __internal::memory();
    let (due, next) = (GROWTH_BYTES.load(Relaxed), bytes + (bytes / 16).max(GROWTH_STEP_BYTES_MIN));
    let has_grown = bytes >= due;
    GROWTH_BYTES.store(if has_grown { next } else { next.min(due) }, Relaxed);
    has_grown
}

impl Run {
    /// Begins a run that was due for some time.
    fn begin(now_ns: u64, due_ns: u64) -> Run {
        let has_grown = has_grown();
        let quiet_since_ns = due_ns.min(now_ns);
        let is_after_pause = now_ns - quiet_since_ns >= IDLE_ALWAYS_NS;
        let most_ns = if is_after_pause { PAUSED_RUN_NS_MAX } else { RUN_NS_MAX };
        let least_ns = if has_grown { GROWING_RUN_NS } else { 0 };
        let time = SAVED_TIME.begin(now_ns, least_ns, most_ns);
        Run { now_ns, quiet_since_ns, has_grown, time }
    }

    /// Returns whether everything that is free was free for long.
    fn is_after_pause(&self) -> bool {
        self.now_ns - self.quiet_since_ns >= IDLE_ALWAYS_NS
    }

    /// Moves the blocks in lanes of idle classes to barns.
    fn flush_idle_lanes(&mut self) {
        let mut left = match self.is_after_pause() {
            true => CLASS_COUNT,
            false if self.time.is_left() => CLASSES_PER_RUN_MAX,
            false => 0,
        };
        let is_idle: [bool; CLASS_COUNT] = core::array::from_fn(|class| {
            let trades = objects(class).trades();
            let Some(since_ns) = ACTIVITY[class].update(trades, self.quiet_since_ns) else {
                return false;
            };
            let idle_ns = self.now_ns.saturating_sub(since_ns);
            let is_long_idle = idle_ns >= IDLE_ALWAYS_NS && left > 0;
            left -= usize::from(is_long_idle);
            (self.has_grown && idle_ns >= IDLE_GROWING_NS) || is_long_idle
        });
        if is_idle.contains(&true) {
            self.time.spend(FENCE_NS);
            flush_lanes(&is_idle);
        }
        for class in (0..CLASS_COUNT).filter(|&class| is_idle[class]) {
            self.time.spend(CLASS_NS);
            ACTIVITY[class].set_emptied(objects(class).trades());
            // The blocks from its lanes count as unused too.
            objects(class).begin_window(Window::Short);
        }
    }

    /// Moves unused sheaves from barns to slabs, as long as there is time. A later run continues.
    fn flush_unused_sheaves(&mut self) {
        let long_ns = self.now_ns.saturating_sub(LONG_SINCE_NS.load(Relaxed));
        let is_long = long_ns >= IDLE_ALWAYS_NS;
        for (class, activity) in ACTIVITY.iter().enumerate() {
            let objects = objects(class);
            let kept = UNUSED_BYTES_KEPT.max(objects.sheaf_capacity() * size_of_class(class));
            if activity.is_emptied.load(Relaxed) {
                self.flush_down_to(0, class, Window::Short);
            } else {
                if self.has_grown {
                    self.flush_down_to(kept, class, Window::Short);
                }
                if is_long {
                    self.flush_down_to(kept, class, Window::Long);
                }
            }
            objects.begin_window(Window::Short);
        }
        if is_long && self.time.is_left() {
            (0..CLASS_COUNT).for_each(|class| objects(class).begin_window(Window::Long));
            LONG_SINCE_NS.store(self.now_ns, Relaxed);
        }
    }

    /// Moves sheaves of a class from barns to slabs while more bytes are unused.
    fn flush_down_to(&mut self, kept: usize, class: usize, window: Window) {
        while self.time.is_left() && objects(class).unused_bytes(window) > kept {
            match objects(class).flush_unused(window) {
                // Other threads have the locks of the barns.
                0 => return,
                blocks => self.time.spend(SHEAF_NS + blocks as u64 * BLOCK_NS),
            }
        }
    }

    /// Drops free pages of slabs in use, as long as there is time.
    fn drop_free_pages(&mut self) {
        // After a pause, each slab has been idle for long.
        let pages = if self.is_after_pause() { SlabPages::All } else { SlabPages::Idle };
        while self.time.is_left() {
            let most = (self.time.left_ns() / DROPPED_KIB_NS) as usize * 1024;
            let Some(done) = free_pages::drop_some(self.now_ns, most, pages) else { return };
            let dropped_ns = done.tried as u64 / 1024 * DROPPED_KIB_NS;
            self.time.spend(WALK_NS + done.slabs as u64 * SLAB_NS + dropped_ns);
        }
    }

    /// Drops pages of free chunks, as long as there is time.
    fn purge(&mut self) {
        let mebibytes = |time: &Allowance| {
            ((time.left_ns() / PURGED_MIB_NS) as usize).clamp(PURGED_MIB_MIN, PURGED_MIB_MAX)
        };
        if !self.is_after_pause() {
            let purged = __internal::purge_some_if_due(mebibytes(&self.time) << 20);
            self.time.spend((purged as u64 * PURGED_MIB_NS) >> 20);
            return;
        }
        // In pieces, because pages may take longer than by the estimate.
        let since_ns = cpu_time();
        loop {
            let purged = __internal::purge_some(mebibytes(&self.time) << 20);
            self.time.spend((purged as u64 * PURGED_MIB_NS) >> 20);
            if purged == 0 || !self.time.is_left() || cpu_time() - since_ns > PAUSED_RUN_NS_MAX {
                return;
            }
        }
    }
}

/// Returns the CPU time of this thread, without its waits for a CPU.
///
/// In nanoseconds; 0 if a sandbox denies it.
fn cpu_time() -> u64 {
    // A sandbox may deny the clock.
    let _errno = save_errno();
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns whether anything is kept that later runs may return; an estimate.
pub(crate) fn is_pending() -> bool {
    let keeps = |class: usize| {
        let (objects, activity) = (objects(class), &ACTIVITY[class]);
        let trades = objects.trades();
        let is_emptied =
            activity.is_emptied.load(Relaxed) && activity.trades.load(Relaxed) == trades;
        trades != 0 && !(is_emptied && objects.objects_in_barns() == 0)
    };
    __internal::has_free_pages() || free_pages::is_pending() || (0..CLASS_COUNT).any(keeps)
}

impl ClassActivity {
    /// Records the number of trades so far, and returns since when the class is idle.
    ///
    /// Trades that the last run did not see were before `quiet_since_ns`. Returns `None` if the
    /// class was never used, or is emptied already.
    fn update(&self, trades: u64, quiet_since_ns: u64) -> Option<u64> {
        if self.trades.load(Relaxed) != trades {
            self.trades.store(trades, Relaxed);
            self.idle_since_ns.store(quiet_since_ns, Relaxed);
            self.is_emptied.store(false, Relaxed);
        }
        let can_be_emptied = trades != 0 && !self.is_emptied.load(Relaxed);
        can_be_emptied.then(|| self.idle_since_ns.load(Relaxed))
    }

    /// Records that the class was emptied. `trades` includes those that emptying it took.
    fn set_emptied(&self, trades: u64) {
        self.trades.store(trades, Relaxed);
        self.is_emptied.store(true, Relaxed);
    }
}

/// Returns all free memory to the system; the result is whether there was any.
///
/// Pages in which all blocks are free go back too, if their slab has other blocks in use. Costs a
/// system call for each run of such pages.
///
/// `_keep` is ignored: nothing is kept. Blocks the calling thread for a fence, and for the locks of
/// all classes.
pub fn trim(_keep: usize) -> bool {
    let _errno = save_errno();
    heap::shrink();
    // First: it may leave more free chunks that have pages.
    let slabs = heap::drop_free_pages(0..usize::MAX, usize::MAX, SlabPages::All);
    slabs.bytes + __internal::purge() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_due_after_an_interval_and_if_the_clock_was_set_back() {
        let due_ns = 5 * INTERVAL_NS;
        assert!(is_due(due_ns, due_ns) && is_due(2 * due_ns, due_ns));
        assert!(!is_due(due_ns - 1, due_ns) && !is_due(due_ns - INTERVAL_NS, due_ns));
        assert!(is_due(due_ns - INTERVAL_NS - 1, due_ns) && is_due(0, due_ns));
    }
}
