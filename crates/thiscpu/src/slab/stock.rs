//! A stock: sheaves with entries, and empty ones, for some lanes of a node.
//!
//! A node has several, so that many CPUs that trade at once do not all wait for one lock; a lane always asks the same one
//! first. What a stock keeps is bounded by objects and by bytes; what is more goes to the slabs. So does, a few sheaves at a time, what was in it for a while
//! and nobody asked for: the fewest objects that there were meanwhile, the working set of Bonwick and Adams' depot.

use super::sheaf::{List, Sheaf};
use crate::sys::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::{Guard, Lock};

/// How many stocks a node has.
pub(super) const STOCKS: usize = if cfg!(thiscpu_model) { 1 } else { 8 };
const OBJECTS_MAX: usize = if cfg!(thiscpu_model) { 2 } else { 131_072 };
const BYTES_MAX: usize = 16 * 1024 * 1024;
const EMPTY_MAX: usize = 128;
/// What nobody has needed for so long is not needed.
const IDLE_NS: u64 = 100_000_000;

#[repr(align(64))]
pub(super) struct Stock {
    lock: Lock,
    with_entries: List,
    /// How many entries those have.
    objects: AtomicUsize,
    empty: List,
    empty_count: AtomicUsize,
    /// How many sheaves were asked for and handed in.
    trades: AtomicU64,
    /// How many those were when it was tidied.
    tidied: AtomicU64,
    /// The fewest that were there since [`Stock::take_unused`].
    fewest: AtomicUsize,
    /// Since some time there were no fewer objects in it than these, and nobody needs them.
    idle: AtomicUsize,
    since: AtomicU64,
}

impl Stock {
    pub(super) const fn new() -> Stock {
        Stock {
            lock: Lock::new(),
            with_entries: List::new(),
            objects: AtomicUsize::new(0),
            empty: List::new(),
            empty_count: AtomicUsize::new(0),
            trades: AtomicU64::new(0),
            tidied: AtomicU64::new(0),
            fewest: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            since: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> Guard<'_> {
        self.right(self.lock.lock())
    }

    fn try_lock(&self) -> Option<Guard<'_>> {
        self.lock.try_lock().map(|guard| self.right(guard))
    }

    /// After a fork amid a change, counts that are right again.
    fn right<'a>(&self, guard: Guard<'a>) -> Guard<'a> {
        if guard.left_behind {
            self.count_anew();
        }
        guard
    }

    fn count_anew(&self) {
        self.objects.store(self.with_entries.totals().1, Relaxed);
        self.empty_count.store(self.empty.totals().0, Relaxed);
        self.idle.store(0, Relaxed);
    }

    pub(super) fn trades(&self) -> u64 {
        self.trades.load(Relaxed)
    }

    /// Whether it is to be tidied at this number of trades, `every` so many, which then counts as done.
    pub(super) fn is_tidied_at(&self, trades: u64, every: u64) -> bool {
        // Relaxed: two at once do no harm.
        let is_due = trades.wrapping_sub(self.tidied.load(Relaxed)) >= every;
        if is_due {
            self.tidied.store(trades, Relaxed);
        }
        is_due
    }

    /// How many objects are in it, about.
    pub(super) fn objects(&self) -> usize {
        self.objects.load(Relaxed)
    }

    /// How many sheaves are in it.
    pub(super) fn sheaves(&self) -> usize {
        let _guard = self.lock();
        self.with_entries.totals().0 + self.empty.totals().0
    }

    /// How many of its objects nobody has needed since this was last asked, about. Who asks has a pace of their own, and does not
    /// hold up what is idle for longer.
    pub(super) fn take_unused(&self) -> usize {
        let objects = self.objects();
        // Relaxed: an estimate.
        self.fewest.swap(objects, Relaxed).min(objects)
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

    fn pop_locked(&self) -> Option<Sheaf> {
        let sheaf = self.with_entries.pop()?;
        let left = self.objects().saturating_sub(sheaf.count());
        self.objects.store(left, Relaxed);
        self.idle.store(self.idle.load(Relaxed).min(left), Relaxed);
        self.fewest.store(self.fewest.load(Relaxed).min(left), Relaxed);
        Some(sheaf)
    }

    /// A sheaf of those that nobody has needed for a while, if nobody has the lock.
    pub(super) fn pop_idle(&self, now: u64) -> Option<Sheaf> {
        let _guard = self.try_lock()?;
        if now.saturating_sub(self.since.load(Relaxed)) < IDLE_NS {
            return None;
        }
        match self.idle.load(Relaxed) {
            0 => {
                self.since.store(now, Relaxed);
                self.idle.store(self.objects(), Relaxed);
                None
            }
            idle => {
                let sheaf = self.pop_locked()?;
                self.idle.store(idle.saturating_sub(sheaf.count()), Relaxed);
                Some(sheaf)
            }
        }
    }

    /// The same for others than its lanes, if there is one and nobody has the lock.
    pub(super) fn steal(&self) -> Option<Sheaf> {
        if self.with_entries.is_empty() {
            return None;
        }
        let _guard = self.try_lock()?;
        self.pop_locked()
    }

    /// Takes a sheaf with entries of `size` bytes each; gives it back if there is enough.
    pub(super) fn push(&self, sheaf: Sheaf, size: usize) -> Result<(), Sheaf> {
        let _guard = self.lock();
        self.count_trade();
        let objects = self.objects.load(Relaxed) + sheaf.count();
        if objects > OBJECTS_MAX || objects * size > BYTES_MAX {
            return Err(sheaf);
        }
        self.objects.store(objects, Relaxed);
        self.with_entries.push(sheaf);
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
