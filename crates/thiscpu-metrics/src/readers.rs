//! Readers of tables, which are counted so that nothing they may use is freed.
//!
//! A reader counts itself in one of a few stripes, and only then loads pointers. A writer unlinks a
//! value first, so that no later reader finds it, and then *retires* it. A retired value is freed
//! once each count has been 0 after that. No reader ever waits, for writers or for anything else.
//!
//! All of these accesses are `SeqCst`, so they have one order. If a reader has loaded a pointer
//! that was unlinked later, its count precedes that load. The load precedes the unlinking, which
//! precedes the writer's look at the count. So the writer sees the reader until it leaves.
//!
//! Counts exist twice, and new readers use the current one. A writer makes the other one current.
//! So readers that come later cannot keep the count above 0 that the writer waits for.

use std::{
    any::Any,
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, Release, SeqCst},
        },
    },
    thread,
};

/// The number of stripes. Threads in different stripes share no cache line.
const STRIPES: usize = 32;

/// How often a writer gives up its CPU to readers before it leaves the rest for later.
const YIELDS_MAX: usize = 100;

/// Readers of the tables of a registry, and the values that they may still use.
pub(crate) struct Readers {
    /// Which counts are current: its lowest bit.
    epoch: AtomicUsize,
    stripes: Box<[Stripe; STRIPES]>,
    retired: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// The numbers of readers, for either value of the epoch's lowest bit.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicUsize; 2]);

/// A reader, for which nothing is freed that it could have found.
pub(crate) struct Reader<'a> {
    count: &'a AtomicUsize,
}

impl Default for Readers {
    fn default() -> Readers {
        let stripes = Box::new(std::array::from_fn(|_| Stripe::default()));
        Readers { epoch: AtomicUsize::new(0), stripes, retired: Mutex::default() }
    }
}

impl Readers {
    /// Begins reading. Never waits.
    #[inline]
    pub(crate) fn enter(&self) -> Reader<'_> {
        // Relaxed: a writer looks at both counts, so an outdated epoch is as good as the current.
        let epoch = self.epoch.load(Relaxed);
        let count = &self.stripes[stripe() % STRIPES].0[epoch % 2];
        // SeqCst: pairs with the load in `have_left`, as the module's documentation says.
        count.fetch_add(1, SeqCst);
        Reader { count }
    }

    /// Frees a value later, which has been unlinked by a `SeqCst` access.
    pub(crate) fn retire(&self, value: Box<dyn Any + Send>) {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    /// Frees retired values, unless a reader stays for long. The next call frees these.
    pub(crate) fn collect(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        if retired.is_empty() || !self.have_left() {
            return;
        }
        let free = std::mem::take(&mut *retired);
        // Not under the lock, which the next call may take meanwhile.
        drop(retired);
        drop(free);
    }

    /// Waits a little for all readers that there are now; returns whether they have left.
    ///
    /// The caller holds the lock of `retired`.
    fn have_left(&self) -> bool {
        let current = self.epoch.load(Relaxed) % 2;
        let mut yields = 0;
        let mut is_zero = |count: usize| {
            self.stripes.iter().all(|stripe| {
                // SeqCst: pairs with the increment in `enter`. It is also an Acquire, which pairs
                // with the Release by which readers leave: they use nothing any more.
                while stripe.0[count].load(SeqCst) != 0 {
                    if yields == YIELDS_MAX {
                        return false;
                    }
                    yields += 1;
                    thread::yield_now();
                }
                true
            })
        };
        // The other counts first: a reader may have loaded an outdated epoch.
        is_zero(1 - current) && {
            // Relaxed: it only says where later readers count themselves.
            self.epoch.store(1 - current, Relaxed);
            is_zero(current)
        }
    }
}

impl Drop for Reader<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the load in `have_left`.
        self.count.fetch_sub(1, Release);
    }
}

/// Returns a number that few other threads have.
#[inline]
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        /// The thread's number plus 1; 0 before its first use.
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            // Relaxed: each thread gets another number, which orders nothing.
            number.set(THREADS.fetch_add(1, Relaxed) % STRIPES + 1);
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn retired_value_is_freed_after_its_readers_have_left() {
        let (readers, value) = (Readers::default(), Arc::new(()));
        let is_freed = || {
            readers.collect();
            Arc::strong_count(&value) == 1
        };
        let retire = || readers.retire(Box::new(Arc::clone(&value)));
        retire();
        assert!(is_freed());
        // A reader of either epoch, among readers that come later.
        for _ in 0..3 {
            let first = readers.enter();
            retire();
            assert!(!is_freed());
            let later = readers.enter();
            drop(first);
            assert!(!is_freed());
            drop(later);
            assert!(is_freed());
        }
    }

    /// Counts as a reader does that has loaded an outdated epoch.
    #[test]
    fn value_is_kept_for_readers_of_either_count() {
        let readers = Readers::default();
        for count in [0, 1] {
            let value = Arc::new(());
            readers.stripes[0].0[count].fetch_add(1, SeqCst);
            readers.retire(Box::new(Arc::clone(&value)));
            readers.collect();
            assert_eq!(Arc::strong_count(&value), 2);
            readers.stripes[0].0[count].fetch_sub(1, SeqCst);
            readers.collect();
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }
}
