//! Barns: filled and empty sheaves that some lanes of a node trade with, as the kernel's
//! `node_barn`.
//!
//! A node has several barns, so that CPUs that trade at once do not all wait for one lock. A lane
//! always asks the same barn first. What a barn keeps is bounded in objects and in bytes; the rest
//! goes to the slabs.
//!
//! Objects that no lane has needed for a while go to the slabs too, a few sheaves at a time. Their
//! number is the smallest number of objects that the barn held meanwhile. Bonwick and Adams trim
//! their depot by the same working set.

use super::large_share::LargeShare;
use crate::slab::lane::sheaf::{Sheaf, SheafList};
use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sys::lock::{Guard, Lock};

const OBJECTS_MAX: usize = if cfg!(thiscpu_model) { 2 } else { 131_072 };
const BYTES_MAX: usize = 16 * 1024 * 1024;
const EMPTY_MAX: u32 = 64;
/// Time after which objects that no lane has needed are idle.
const IDLE_NS: u64 = 100_000_000;
/// The span of time in which requests are counted as demand.
///
/// A barn reserves objects for its own lanes if they requested as many in this span or in the one
/// before. The span is short, because that may be all that the barn holds.
const DEMAND_SPAN_NS: u64 = 20_000_000;
/// A barn is busy if less time passes between two checks.
///
/// A [`Capacity`](super::capacity::Capacity) checks after a number of trades that then take at
/// least a fortieth of the time.
const BUSY_NS: u64 = 8_000_000;

/// A window of time, for which a barn counts the objects that no lane has needed.
#[derive(Clone, Copy, Debug)]
pub enum Window {
    /// The one between two looks of the caller.
    Short,
    /// The one that the caller lets last for a while.
    Long,
}

/// The sheaves of some lanes of a node, and what they are traded for.
///
/// The fields are in this order so that a trade of another lane, and a check for unused objects,
/// need only the first cache line.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Barn {
    lock: Lock,
    empty_count: AtomicU32,
    filled: SheafList,
    empty: SheafList,
    /// Number of sheaves requested and handed in so far.
    trades: AtomicU64,
    /// Number of objects in filled sheaves.
    objects: AtomicU32,
    /// The fewest objects held in the short window.
    short_min: AtomicU32,
    /// The fewest objects held since `idle_since`: these are idle.
    idle_min: AtomicU32,
    /// Objects that the barn's lanes requested in the span `span`, and in the one before.
    requested: AtomicU32,
    requested_before: AtomicU32,
    /// The fewest objects held in those two spans, less those that other barns' lanes stole.
    ///
    /// The barn's own lanes have not needed these.
    span_min: AtomicU32,
    span_min_before: AtomicU32,
    /// Value of `trades`, modulo 2^32, when idle objects were last trimmed.
    trimmed_at: AtomicU32,
    span: AtomicU64,
    /// The fewest objects held in the long window.
    long_min: AtomicU32,
    idle_since: AtomicU64,
    /// When it was last checked whether the barn is busy.
    busy_checked: AtomicU64,
    /// The barn's part of what barns of large objects hold, if its objects are large.
    large: Option<LargeShare>,
}

impl Barn {
    /// Creates an empty barn; `large` is its share if its objects are large.
    pub(super) fn new(large: Option<LargeShare>) -> Barn {
        Barn { large, ..Barn::default() }
    }

    /// Counts large objects that came, or left, among those of all classes.
    fn count_large(&self, objects: isize) {
        if let Some(large) = self.large {
            large.count(objects);
        }
    }

    fn lock(&self) -> Guard<'_> {
        self.recover(self.lock.lock())
    }

    fn try_lock(&self) -> Option<Guard<'_>> {
        self.lock.try_lock().map(|guard| self.recover(guard))
    }

    /// Recounts, if the lock's owner died in a fork and left the counts wrong.
    fn recover<'a>(&self, guard: Guard<'a>) -> Guard<'a> {
        if guard.owner_died {
            self.recount();
        }
        guard
    }

    fn recount(&self) {
        let objects = self.filled.totals().1;
        self.count_large(objects as isize - self.objects() as isize);
        self.objects.store(objects as u32, Relaxed);
        self.empty_count.store(self.empty.totals().0 as u32, Relaxed);
        self.idle_min.store(0, Relaxed);
    }

    pub(super) fn trades(&self) -> u64 {
        self.trades.load(Relaxed)
    }

    /// Returns whether idle objects are to be trimmed, after `every` trades; notes it if so.
    pub(super) fn is_trim_due(&self, trades: u64, every: u32) -> bool {
        let trades = trades as u32;
        // Relaxed: two threads that both trim do no harm.
        let is_due = trades.wrapping_sub(self.trimmed_at.load(Relaxed)) >= every;
        if is_due {
            self.trimmed_at.store(trades, Relaxed);
        }
        is_due
    }

    /// Returns whether the last call was a short while ago.
    ///
    /// The caller asks after a fixed number of trades, so a short while means many trades.
    pub(super) fn is_busy(&self, now: u64) -> bool {
        // Relaxed: two threads that check at once do no harm.
        let before = self.busy_checked.load(Relaxed);
        self.busy_checked.store(now, Relaxed);
        now.saturating_sub(before) <= BUSY_NS
    }

    /// Returns the number of objects held; an estimate.
    pub(super) fn objects(&self) -> usize {
        self.objects.load(Relaxed) as usize
    }

    pub(super) fn sheaves(&self) -> usize {
        let _guard = self.lock();
        self.filled.totals().0 + self.empty.totals().0
    }

    fn min_in(&self, window: Window) -> &AtomicU32 {
        match window {
            Window::Short => &self.short_min,
            Window::Long => &self.long_min,
        }
    }

    /// Returns how many objects no lane has needed in this window so far; an estimate.
    pub(super) fn unused_objects(&self, window: Window) -> usize {
        // Relaxed, here and below: an estimate.
        self.min_in(window).load(Relaxed).min(self.objects.load(Relaxed)) as usize
    }

    /// Pops a filled sheaf if there are unused objects and no thread has the lock.
    pub(super) fn pop_unused(&self, window: Window) -> Option<Sheaf> {
        if self.unused_objects(window) == 0 {
            return None;
        }
        let _guard = self.try_lock()?;
        let unused = self.unused_objects(window);
        let sheaf = self.pop_locked()?;
        self.min_in(window).store(unused.saturating_sub(sheaf.count()) as u32, Relaxed);
        Some(sheaf)
    }

    /// Begins a window in which unused objects are counted.
    ///
    /// The one caller of this sets the length of the window. It does not affect what counts as
    /// idle.
    pub(super) fn begin_window(&self, window: Window) {
        let (min, objects) = (self.min_in(window), self.objects.load(Relaxed));
        if min.load(Relaxed) != objects {
            min.store(objects, Relaxed);
        }
    }

    /// Counts a trade and returns the number of trades so far.
    fn count_trade(&self) -> u64 {
        let trades = self.trades.load(Relaxed) + 1;
        self.trades.store(trades, Relaxed);
        trades
    }

    /// Pops a filled sheaf, if there is one, and returns the number of trades so far.
    pub(super) fn pop(&self) -> (Option<Sheaf>, u64) {
        let _guard = self.lock();
        let trades = self.count_trade();
        (self.pop_locked(), trades)
    }

    /// Counts objects that one of the barn's lanes got, here or from elsewhere.
    pub(super) fn count_requested(&self, objects: usize, now: u64) {
        // Relaxed, here and below: an estimate, which may miss what two threads count at once.
        let [requested, before] = self.requested_lately(now);
        // The caller may have read the clock a while ago, so `now` may be in an earlier span.
        if self.span.load(Relaxed) < now / DEMAND_SPAN_NS {
            self.span.store(now / DEMAND_SPAN_NS, Relaxed);
            self.requested_before.store(before, Relaxed);
            self.span_min_before.store(self.span_min.load(Relaxed), Relaxed);
            self.span_min.store(self.objects.load(Relaxed), Relaxed);
        }
        self.requested.store(requested.saturating_add(objects as u32), Relaxed);
    }

    /// Returns how many objects the barn's lanes requested in this span and in the one before.
    fn requested_lately(&self, now: u64) -> [u32; 2] {
        let requested = self.requested.load(Relaxed);
        match (now / DEMAND_SPAN_NS).saturating_sub(self.span.load(Relaxed)) {
            0 => [requested, self.requested_before.load(Relaxed)],
            1 => [0, requested],
            _ => [0, 0],
        }
    }

    /// Pops a filled sheaf, if there is one, for a lane that finds none elsewhere.
    pub(super) fn pop_any(&self) -> Option<Sheaf> {
        let _guard = self.lock();
        self.pop_locked()
    }

    fn pop_locked(&self) -> Option<Sheaf> {
        let sheaf = self.filled.pop()?;
        let left = self.objects().saturating_sub(sheaf.count()) as u32;
        self.objects.store(left, Relaxed);
        self.count_large(-(sheaf.count() as isize));
        self.idle_min.store(self.idle_min.load(Relaxed).min(left), Relaxed);
        for min in [&self.short_min, &self.span_min, &self.long_min] {
            min.store(min.load(Relaxed).min(left), Relaxed);
        }
        Some(sheaf)
    }

    /// Pops a filled sheaf if some objects have been idle for a while and no thread has the lock.
    pub(super) fn pop_idle(&self, now: u64) -> Option<Sheaf> {
        let _guard = self.try_lock()?;
        if now.saturating_sub(self.idle_since.load(Relaxed)) < IDLE_NS {
            return None;
        }
        match self.idle_min.load(Relaxed) {
            0 => {
                self.idle_since.store(now, Relaxed);
                self.idle_min.store(self.objects.load(Relaxed), Relaxed);
                None
            }
            idle => {
                let sheaf = self.pop_locked()?;
                self.idle_min.store(idle.saturating_sub(sheaf.count() as u32), Relaxed);
                Some(sheaf)
            }
        }
    }

    /// Pops a filled sheaf for a lane of another barn.
    ///
    /// Takes only what the barn's own lanes will not need soon, by an estimate, and only if nobody
    /// has the lock. Otherwise two barns whose lanes fill and drain in turn would keep swapping
    /// each other's objects.
    pub(super) fn steal(&self, now: u64) -> Option<Sheaf> {
        if self.filled.is_empty() || self.is_reserved(now) {
            return None;
        }
        let _guard = self.try_lock()?;
        let sheaf = self.pop_locked()?;
        for span_min in [&self.span_min, &self.span_min_before] {
            span_min.store(span_min.load(Relaxed).saturating_sub(sheaf.count() as u32), Relaxed);
        }
        Some(sheaf)
    }

    /// Returns whether the barn keeps all that it holds for its own lanes.
    ///
    /// It does if they lately requested as many objects as there are, and left none unused. So a
    /// lane that allocates and frees many objects ends up with other lanes' objects too.
    fn is_reserved(&self, now: u64) -> bool {
        let [requested, before] = self.requested_lately(now);
        let left = self.span_min.load(Relaxed).min(self.span_min_before.load(Relaxed));
        left == 0 && self.objects() <= requested.saturating_add(before) as usize
    }

    /// Pushes a filled sheaf of objects of `size` bytes, and counts a trade.
    ///
    /// Returns the sheaf if it is to be flushed, or if the barn would hold too much.
    pub(super) fn push(&self, sheaf: Sheaf, size: usize, should_flush: bool) -> Result<(), Sheaf> {
        let _guard = self.lock();
        self.count_trade();
        let objects = self.objects() + sheaf.count();
        let bytes = sheaf.count() * size;
        let is_full = objects > OBJECTS_MAX
            || objects * size > BYTES_MAX
            || self.large.is_some_and(|large| large.has_no_room(bytes));
        if should_flush || is_full {
            return Err(sheaf);
        }
        self.objects.store(objects as u32, Relaxed);
        self.count_large(sheaf.count() as isize);
        self.filled.push(sheaf);
        Ok(())
    }

    pub(super) fn pop_empty(&self) -> Option<Sheaf> {
        let _guard = self.lock();
        self.pop_empty_locked()
    }

    fn pop_empty_locked(&self) -> Option<Sheaf> {
        let sheaf = self.empty.pop()?;
        self.empty_count.store(self.empty_count.load(Relaxed).saturating_sub(1), Relaxed);
        Some(sheaf)
    }

    /// Pushes an empty sheaf; returns it if there are enough.
    pub(super) fn push_empty(&self, sheaf: Sheaf) -> Result<(), Sheaf> {
        let _guard = self.lock();
        let count = self.empty_count.load(Relaxed) + 1;
        if count > EMPTY_MAX {
            return Err(sheaf);
        }
        self.empty_count.store(count, Relaxed);
        self.empty.push(sheaf);
        Ok(())
    }

    /// Pops any sheaf, filled ones first.
    pub(super) fn drain(&self) -> Option<Sheaf> {
        let _guard = self.lock();
        self.pop_locked().or_else(|| self.pop_empty_locked())
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    #[test]
    fn barn_is_busy_when_checked_again_soon() {
        const SECOND: u64 = 1_000_000_000;
        let barn = Barn::default();
        assert!(!barn.is_busy(SECOND));
        assert!(barn.is_busy(SECOND + BUSY_NS));
        assert!(!barn.is_busy(SECOND + 2 * BUSY_NS + 1));
        // Another CPU's clock may be behind.
        assert!(barn.is_busy(SECOND));
    }

    fn sheaf_of(count: usize) -> Sheaf {
        let mut sheaf = crate::slab::lane::sheaf::alloc(crate::slab::lane::sheaf::SMALL_INDEX)
            .expect("there is memory");
        (0..count).for_each(|number| sheaf.push(2 * number + 1));
        sheaf
    }

    #[test]
    fn each_window_counts_what_no_lane_needed_in_it() {
        let barn = Barn::default();
        (0..3).for_each(|_| assert!(barn.push(sheaf_of(4), 64, false).is_ok()));
        [Window::Short, Window::Long].into_iter().for_each(|window| barn.begin_window(window));
        let sheaf = barn.pop().0.expect("there are three");
        assert!(barn.push(sheaf, 64, false).is_ok());
        let unused = || [Window::Short, Window::Long].map(|window| barn.unused_objects(window));
        assert_eq!(unused(), [8, 8]);
        barn.begin_window(Window::Short);
        assert_eq!(unused(), [12, 8]);
        let popped = core::iter::from_fn(|| barn.pop_unused(Window::Long));
        assert_eq!(popped.count(), 2);
        assert_eq!(unused(), [4, 0]);
    }

    /// Lets one of the barn's lanes get a sheaf and hand one in, at time `now`.
    fn trade(barn: &Barn, now: u64) {
        let sheaf = barn.pop().0.expect("there is one");
        barn.count_requested(100, now);
        assert!(barn.push(sheaf, 64, false).is_ok());
    }

    #[test]
    fn other_lanes_steal_what_own_lanes_left_unused() {
        let barn = Barn::default();
        (0..3).for_each(|_| assert!(barn.push(sheaf_of(4), 64, false).is_ok()));
        trade(&barn, DEMAND_SPAN_NS);
        assert!(
            barn.steal(DEMAND_SPAN_NS).is_none(),
            "a span must pass before anything counts as unused"
        );
        trade(&barn, 2 * DEMAND_SPAN_NS);
        for _ in 0..2 {
            assert!(barn.steal(2 * DEMAND_SPAN_NS).is_some(), "own lanes left it unused");
        }
        assert!(barn.steal(2 * DEMAND_SPAN_NS).is_none(), "own lanes requested the rest");
        assert!(barn.steal(4 * DEMAND_SPAN_NS).is_some(), "the requests are too old");
    }

    #[test]
    fn other_lanes_steal_nothing_that_own_lanes_request() {
        let barn = Barn::default();
        (0..2).for_each(|_| assert!(barn.push(sheaf_of(4), 64, false).is_ok()));
        for span in 1..5 {
            trade(&barn, span * DEMAND_SPAN_NS);
            // The lanes take all of it at some moment.
            let all = [(); 2].map(|()| barn.pop().0.expect("there are two"));
            all.into_iter().for_each(|sheaf| assert!(barn.push(sheaf, 64, false).is_ok()));
            assert!(barn.steal(span * DEMAND_SPAN_NS).is_none(), "in span {span}");
        }
    }
}
