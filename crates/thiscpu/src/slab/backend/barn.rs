//! A barn: sheaves with entries, and empty ones, for some lanes of a node.
//!
//! A node has several, so that many CPUs that trade at once do not all wait for one lock; a lane always asks the same one
//! first. What a barn keeps is bounded by objects and by bytes; what is more goes to the slabs. So does, a few sheaves at a time, what was in it for a while
//! and nobody requested for: the window_min objects that there were meanwhile, the working set of Bonwick and Adams' depot.

use crate::slab::lane::sheaf::{Sheaf, SheafList};
use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sys::lock::{Guard, Lock};

/// How many barns a node has.
pub(super) const BARNS_PER_NODE: usize = if cfg!(thiscpu_model) { 1 } else { 8 };
const OBJECTS_MAX: usize = if cfg!(thiscpu_model) { 2 } else { 131_072 };
const BYTES_MAX: usize = 16 * 1024 * 1024;
const EMPTY_MAX: u32 = 64;
/// What nobody has needed for so long is not needed.
const IDLE_NS: u64 = 100_000_000;
/// What its lanes have requested for in this span of time, or in the one before, they will ask for again. A short one, because all that a barn has may be
/// kept for them.
const DEMAND_SPAN_NS: u64 = 20_000_000;
/// A barn is busy if no more time goes by between two looks: the trades that a [`Capacity`](super::capacity::Capacity) waits for
/// take a fortieth of it then, or more.
const BUSY_NS: u64 = 8_000_000;

/// In this order, so that what others' trades need, and looks at what is not needed, is in one line.
#[repr(C, align(64))]
pub(super) struct Barn {
    lock: Lock,
    empty_count: AtomicU32,
    filled: SheafList,
    empty: SheafList,
    /// How many sheaves were requested for and handed in.
    trades: AtomicU64,
    /// How many entries it has.
    objects: AtomicU32,
    /// The window_min that were there idle_since [`Barn::begin_window`].
    window_min: AtomicU32,
    /// Since some time there were no fewer objects in it than these, and nobody needs them.
    idle_min: AtomicU32,
    /// How many objects its lanes have requested for in the span `span`, and in the one before.
    requested: AtomicU32,
    requested_before: AtomicU32,
    /// The window_min objects that were there in that span, and in the one before: so many its lanes have not needed. What others took is off.
    span_min: AtomicU32,
    span_min_before: AtomicU32,
    /// How many trades there were when it was trimmed_at, modulo 2^32.
    trimmed_at: AtomicU32,
    span: AtomicU64,
    idle_since: AtomicU64,
    /// When it was last requested whether it is busy.
    busy_checked: AtomicU64,
}

impl Barn {
    pub(super) const fn new() -> Barn {
        Barn {
            lock: Lock::new(),
            empty_count: AtomicU32::new(0),
            filled: SheafList::new(),
            empty: SheafList::new(),
            trades: AtomicU64::new(0),
            objects: AtomicU32::new(0),
            window_min: AtomicU32::new(0),
            idle_min: AtomicU32::new(0),
            requested: AtomicU32::new(0),
            requested_before: AtomicU32::new(0),
            span_min: AtomicU32::new(0),
            span_min_before: AtomicU32::new(0),
            trimmed_at: AtomicU32::new(0),
            span: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            busy_checked: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> Guard<'_> {
        self.recover(self.lock.lock())
    }

    fn try_lock(&self) -> Option<Guard<'_>> {
        self.lock.try_lock().map(|guard| self.recover(guard))
    }

    /// After a fork amid a change, counts that are recover again.
    fn recover<'a>(&self, guard: Guard<'a>) -> Guard<'a> {
        if guard.left_behind {
            self.recount();
        }
        guard
    }

    fn recount(&self) {
        self.objects.store(self.filled.totals().1 as u32, Relaxed);
        self.empty_count.store(self.empty.totals().0 as u32, Relaxed);
        self.idle_min.store(0, Relaxed);
    }

    pub(super) fn trades(&self) -> u64 {
        self.trades.load(Relaxed)
    }

    /// Whether it is to be trimmed_at at this number of trades, `every` so many, which then counts as done.
    pub(super) fn is_trim_due(&self, trades: u64, every: u32) -> bool {
        let trades = trades as u32;
        // Relaxed: two at once do no harm.
        let is_due = trades.wrapping_sub(self.trimmed_at.load(Relaxed)) >= every;
        if is_due {
            self.trimmed_at.store(trades, Relaxed);
        }
        is_due
    }

    /// Whether it was requested this a short while ago: the caller asks once in so many trades.
    pub(super) fn is_busy(&self, now: u64) -> bool {
        // Relaxed: two who ask at once do no harm.
        let before = self.busy_checked.load(Relaxed);
        self.busy_checked.store(now, Relaxed);
        now.saturating_sub(before) <= BUSY_NS
    }

    /// How many objects are in it, about.
    pub(super) fn objects(&self) -> usize {
        self.objects.load(Relaxed) as usize
    }

    /// How many sheaves are in it.
    pub(super) fn sheaves(&self) -> usize {
        let _guard = self.lock();
        self.filled.totals().0 + self.empty.totals().0
    }

    /// How many of its objects nobody has needed idle_since [`Barn::begin_window`], about.
    pub(super) fn unused_objects(&self) -> usize {
        // Relaxed, here and below: an estimate.
        self.window_min.load(Relaxed).min(self.objects.load(Relaxed)) as usize
    }

    /// A sheaf of those, if nobody has the lock.
    pub(super) fn pop_unused(&self) -> Option<Sheaf> {
        if self.unused_objects() == 0 {
            return None;
        }
        let _guard = self.try_lock()?;
        let unused_objects = self.unused_objects();
        let sheaf = self.pop_locked()?;
        self.window_min.store(unused_objects.saturating_sub(sheaf.count()) as u32, Relaxed);
        Some(sheaf)
    }

    /// From now on it counts anew what nobody needs. Who does this has a pace of their own, and does not hold up what is idle for longer.
    pub(super) fn begin_window(&self) {
        let objects = self.objects.load(Relaxed);
        if self.window_min.load(Relaxed) != objects {
            self.window_min.store(objects, Relaxed);
        }
    }

    /// Counts a trade; the number of them so far.
    fn count_trade(&self) -> u64 {
        let trades = self.trades.load(Relaxed) + 1;
        self.trades.store(trades, Relaxed);
        trades
    }

    /// A sheaf with entries, if there is one, and how many trades there were.
    pub(super) fn pop(&self) -> (Option<Sheaf>, u64) {
        let _guard = self.lock();
        let trades = self.count_trade();
        (self.pop_locked(), trades)
    }

    /// Counts what one of its lanes got, here or elsewhere.
    pub(super) fn count_requested(&self, objects: usize, now: u64) {
        // Relaxed, here and below: an estimate, which may miss what two count at once.
        let [requested, before] = self.requested_lately(now);
        // It may have been requested for the time some time ago.
        if self.span.load(Relaxed) < now / DEMAND_SPAN_NS {
            self.span.store(now / DEMAND_SPAN_NS, Relaxed);
            self.requested_before.store(before, Relaxed);
            self.span_min_before.store(self.span_min.load(Relaxed), Relaxed);
            self.span_min.store(self.objects.load(Relaxed), Relaxed);
        }
        self.requested.store(requested.saturating_add(objects as u32), Relaxed);
    }

    /// How many objects its lanes have requested for in this span of time, and in the one before.
    fn requested_lately(&self, now: u64) -> [u32; 2] {
        let requested = self.requested.load(Relaxed);
        match (now / DEMAND_SPAN_NS).saturating_sub(self.span.load(Relaxed)) {
            0 => [requested, self.requested_before.load(Relaxed)],
            1 => [0, requested],
            _ => [0, 0],
        }
    }

    /// A sheaf with entries, if there is one, for whoever finds none anywhere else.
    pub(super) fn pop_any(&self) -> Option<Sheaf> {
        let _guard = self.lock();
        self.pop_locked()
    }

    fn pop_locked(&self) -> Option<Sheaf> {
        let sheaf = self.filled.pop()?;
        let left = self.objects().saturating_sub(sheaf.count()) as u32;
        self.objects.store(left, Relaxed);
        self.idle_min.store(self.idle_min.load(Relaxed).min(left), Relaxed);
        self.window_min.store(self.window_min.load(Relaxed).min(left), Relaxed);
        self.span_min.store(self.span_min.load(Relaxed).min(left), Relaxed);
        Some(sheaf)
    }

    /// A sheaf of those that nobody has needed for a while, if nobody has the lock.
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

    /// A sheaf for others than its lanes, of what those do not need again soon, about, if there is one and nobody has the lock. Two that
    /// fill and empty theirs by turns would else have each other's objects all the time.
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

    /// Whether all of it is for its own lanes: they have requested for as many, and left nothing. Who allocates and frees many has in the end what
    /// others have allocated, too.
    fn is_reserved(&self, now: u64) -> bool {
        let [requested, before] = self.requested_lately(now);
        let left = self.span_min.load(Relaxed).min(self.span_min_before.load(Relaxed));
        left == 0 && self.objects() <= requested.saturating_add(before) as usize
    }

    /// Takes a sheaf with entries of `size` bytes each; gives it back if that is for slabs, or there is enough. A trade in any case.
    pub(super) fn push(&self, sheaf: Sheaf, size: usize, should_flush: bool) -> Result<(), Sheaf> {
        let _guard = self.lock();
        self.count_trade();
        let objects = self.objects() + sheaf.count();
        if should_flush || objects > OBJECTS_MAX || objects * size > BYTES_MAX {
            return Err(sheaf);
        }
        self.objects.store(objects as u32, Relaxed);
        self.filled.push(sheaf);
        Ok(())
    }

    pub(super) fn pop_empty(&self) -> Option<Sheaf> {
        let _guard = self.lock();
        let sheaf = self.empty.pop()?;
        self.empty_count.store(self.empty_count.load(Relaxed).saturating_sub(1), Relaxed);
        Some(sheaf)
    }

    /// Takes an empty sheaf; gives it back if there are enough.
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

    /// Everything in it, one after the other.
    pub(super) fn drain(&self) -> Option<Sheaf> {
        let _guard = self.lock();
        self.pop_locked().or_else(|| {
            let sheaf = self.empty.pop()?;
            self.empty_count.store(self.empty_count.load(Relaxed).saturating_sub(1), Relaxed);
            Some(sheaf)
        })
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    #[test]
    fn a_stock_is_busy_if_it_is_asked_again_soon() {
        const SECOND: u64 = 1_000_000_000;
        let barn = Barn::new();
        assert!(!barn.is_busy(SECOND));
        assert!(barn.is_busy(SECOND + BUSY_NS));
        assert!(!barn.is_busy(SECOND + 2 * BUSY_NS + 1));
        // Another CPU's clock may be behind.
        assert!(barn.is_busy(SECOND));
    }

    /// A sheaf of so many entries.
    fn of(count: usize) -> Sheaf {
        let mut sheaf = crate::slab::lane::sheaf::alloc(0).expect("there is memory");
        (0..count).for_each(|number| sheaf.push(2 * number + 1));
        sheaf
    }

    /// One of its lanes gets a sheaf and hands one in, at that time.
    fn trade(barn: &Barn, now: u64) {
        let sheaf = barn.pop().0.expect("there is one");
        barn.count_requested(100, now);
        assert!(barn.push(sheaf, 64, false).is_ok());
    }

    #[test]
    fn what_lanes_have_left_is_for_others_too() {
        let barn = Barn::new();
        (0..3).for_each(|_| assert!(barn.push(of(4), 64, false).is_ok()));
        trade(&barn, DEMAND_SPAN_NS);
        assert!(barn.steal(DEMAND_SPAN_NS).is_none(), "it is not known yet what they leave");
        trade(&barn, 2 * DEMAND_SPAN_NS);
        for _ in 0..2 {
            assert!(barn.steal(2 * DEMAND_SPAN_NS).is_some(), "they have left it all the time");
        }
        assert!(
            barn.steal(2 * DEMAND_SPAN_NS).is_none(),
            "they have requested for it, and left nothing"
        );
        assert!(barn.steal(4 * DEMAND_SPAN_NS).is_some(), "they have not requested for long");
    }

    #[test]
    fn what_lanes_need_is_not_for_others() {
        let barn = Barn::new();
        (0..2).for_each(|_| assert!(barn.push(of(4), 64, false).is_ok()));
        for span in 1..5 {
            trade(&barn, span * DEMAND_SPAN_NS);
            // Now and then all of it.
            let all = [(); 2].map(|()| barn.pop().0.expect("there are two"));
            all.into_iter().for_each(|sheaf| assert!(barn.push(sheaf, 64, false).is_ok()));
            assert!(barn.steal(span * DEMAND_SPAN_NS).is_none(), "in span {span}");
        }
    }
}
