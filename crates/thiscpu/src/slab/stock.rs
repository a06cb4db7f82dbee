//! A stock: sheaves with entries, and empty ones, for some lanes of a node.
//!
//! A node has several, so that many CPUs that trade at once do not all wait for one lock; a lane always asks the same one
//! first. What a stock keeps is bounded by objects and by bytes; what is more goes to the slabs.

use super::sheaf::{List, Sheaf};
use crate::sys::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::{Guard, Lock};

/// How many stocks a node has.
pub(super) const STOCKS: usize = if cfg!(thiscpu_model) { 1 } else { 8 };
const OBJECTS_MAX: usize = if cfg!(thiscpu_model) { 2 } else { 16_384 };
const BYTES_MAX: usize = 16 * 1024 * 1024;
const EMPTY_MAX: usize = 128;

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
        }
    }

    fn lock(&self) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.left_behind {
            self.count_anew();
        }
        guard
    }

    fn count_anew(&self) {
        self.objects.store(self.with_entries.totals().1, Relaxed);
        self.empty_count.store(self.empty.totals().0, Relaxed);
    }

    pub(super) fn trades(&self) -> u64 {
        self.trades.load(Relaxed)
    }

    /// How many objects are in it, about.
    pub(super) fn objects(&self) -> usize {
        self.objects.load(Relaxed)
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
        self.objects.store(self.objects.load(Relaxed).saturating_sub(sheaf.count()), Relaxed);
        Some(sheaf)
    }

    /// The same for others than its lanes, if there is one and nobody has the lock.
    pub(super) fn steal(&self) -> Option<Sheaf> {
        if self.with_entries.is_empty() {
            return None;
        }
        let guard = self.lock.try_lock()?;
        if guard.left_behind {
            self.count_anew();
        }
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
