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
//!
//! # Forks
//!
//! The child of a fork has one thread. The other threads' readers never leave, so the child begins
//! new counts. Its thread may have readers from before the fork, which the new counts lack. So each
//! thread counts its readers, and a fork handler notes whether the child's thread has any. Until
//! they have left, the child frees nothing. This is exact because a reader never leaves its thread.

use std::{
    any::Any,
    cell::Cell,
    marker::PhantomData,
    ptr,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
            compiler_fence,
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
    /// The counts that were used last, from a box. They lead to those of parent processes.
    counts: AtomicPtr<Counts>,
    retired: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// The numbers of readers of one process.
struct Counts {
    /// The value of [`FORKS`] in the process.
    forks: u32,
    /// Its lowest bit says which of a stripe's numbers is current.
    epoch: AtomicUsize,
    stripes: [Stripe; STRIPES],
    /// The parent's counts, from a box, or null. Readers from before the fork still use them.
    parent: *mut Counts,
}

/// The numbers of readers, for either value of the epoch's lowest bit.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicUsize; 2]);

/// A reader, for which nothing is freed that it could have found.
pub(crate) struct Reader<'a> {
    count: &'a AtomicUsize,
    /// Keeps the reader on its thread: in a child, the readers of other threads count as gone.
    on_this_thread: PhantomData<*const ()>,
}

/// The number of forks from the process that made the first registry to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Whether the thread that returned from the last fork may have readers from before it.
static HAS_OLD_READERS: AtomicBool = AtomicBool::new(false);

/// A thread's record of its own readers.
struct OwnReaders {
    /// The thread's stripe plus 1; 0 before its first use.
    stripe: Cell<usize>,
    /// The number of the thread's readers.
    count: Cell<usize>,
    /// Whether `HAS_OLD_READERS` is about this thread.
    may_be_old: Cell<bool>,
}

thread_local! {
    static OWN: OwnReaders = const {
        OwnReaders { stripe: Cell::new(0), count: Cell::new(0), may_be_old: Cell::new(false) }
    };
}

/// Runs in each child of `fork`, on its only thread.
extern "C" fn begin_child() {
    let has_old = OWN.with(|own| {
        own.may_be_old.set(own.count.get() > 0);
        own.may_be_old.get()
    });
    // Relaxed, both: there is no other thread yet.
    HAS_OLD_READERS.store(has_old, Relaxed);
    FORKS.fetch_add(1, Relaxed);
}

impl Default for Readers {
    fn default() -> Readers {
        static HANDLER: Once = Once::new();
        // Without memory for the handler, children keep the counts of their parents. Then values
        // that a lost reader might use are not freed.
        // SAFETY: the handler only accesses statics and thread-local cells, as the child of a
        // process with several threads may.
        HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(begin_child)) });
        let counts = AtomicPtr::new(Counts::new(ptr::null_mut()));
        Readers { counts, retired: Mutex::default() }
    }
}

impl Counts {
    /// Makes counts for this process, in a box.
    fn new(parent: *mut Counts) -> *mut Counts {
        let stripes = std::array::from_fn(|_| Stripe::default());
        let forks = FORKS.load(Relaxed);
        Box::into_raw(Box::new(Counts { forks, epoch: AtomicUsize::new(0), stripes, parent }))
    }
}

impl Readers {
    /// Begins reading. Never waits.
    #[inline]
    pub(crate) fn enter(&self) -> Reader<'_> {
        let stripe = OWN.with(|own| {
            own.count.set(own.count.get() + 1);
            match own.stripe.get() {
                0 => first_stripe(own),
                stripe => stripe - 1,
            }
        });
        // If a signal handler forks below this line, its child knows of this reader.
        compiler_fence(SeqCst);
        let counts = self.counts();
        // Relaxed: a writer looks at both counts, so an outdated epoch is as good as the current.
        let epoch = counts.epoch.load(Relaxed);
        let count = &counts.stripes[stripe % STRIPES].0[epoch % 2];
        // SeqCst: pairs with the load in `have_left`, as the module's documentation says.
        count.fetch_add(1, SeqCst);
        Reader { count, on_this_thread: PhantomData }
    }

    /// Returns the counts of this process.
    #[inline]
    fn counts(&self) -> &Counts {
        let seen = self.counts.load(Acquire);
        // SAFETY: counts are from a box, and stay until the readers are dropped. The Acquire above
        // pairs with the exchange in `begin`, so they are initialized.
        let counts = unsafe { &*seen };
        // Relaxed: the number changes only while a process has one thread.
        if counts.forks == FORKS.load(Relaxed) { counts } else { self.begin(seen) }
    }

    /// Makes counts for this process, unless another thread was first.
    ///
    /// `parent` are the counts that the caller found to be another process's. They are not loaded
    /// again, because another thread may have replaced them and use the new ones.
    #[cold]
    fn begin(&self, parent: *mut Counts) -> &Counts {
        let new = Counts::new(parent);
        // AcqRel: pairs with the Acquire loads of the pointer.
        match self.counts.compare_exchange(parent, new, AcqRel, Acquire) {
            // SAFETY: the counts are from a box, and stay until the readers are dropped.
            Ok(_) => unsafe { &*new },
            Err(first) => {
                // SAFETY: both are from boxes. No other thread knows `new`, and another thread has
                // stored `first`, which stays until the readers are dropped.
                unsafe {
                    drop(Box::from_raw(new));
                    &*first
                }
            }
        }
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
        let counts = self.counts();
        // After the counts, so that a signal handler that forks in between does not hide a reader:
        // the counts are then the parent's.
        // Acquire: pairs with the store in `leave`. The readers that left use nothing any more.
        if HAS_OLD_READERS.load(Acquire) {
            return false;
        }
        let current = counts.epoch.load(Relaxed) % 2;
        let mut yields = 0;
        let mut is_zero = |count: usize| {
            counts.stripes.iter().all(|stripe| {
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
            counts.epoch.store(1 - current, Relaxed);
            is_zero(current)
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        let mut next = *self.counts.get_mut();
        while !next.is_null() {
            // SAFETY: the counts are from a box, and are in the list once. No reader is left,
            // because each borrows this value.
            next = unsafe { Box::from_raw(next) }.parent;
        }
    }
}

impl Drop for Reader<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the load in `have_left`.
        self.count.fetch_sub(1, Release);
        // If a signal handler forks above this line, its child knows of this reader.
        compiler_fence(SeqCst);
        OWN.with(|own| {
            let left = own.count.get() - 1;
            own.count.set(left);
            if left == 0 && own.may_be_old.get() {
                leave(own);
            }
        });
    }
}

/// Notes that this thread has no reader from before the fork any more.
#[cold]
fn leave(own: &OwnReaders) {
    own.may_be_old.set(false);
    // Release: pairs with the load in `have_left`.
    HAS_OLD_READERS.store(false, Release);
}

/// Gives this thread a stripe that few other threads have.
#[cold]
fn first_stripe(own: &OwnReaders) -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: each thread gets another number, which orders nothing.
    let stripe = THREADS.fetch_add(1, Relaxed) % STRIPES;
    own.stripe.set(stripe + 1);
    stripe
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use thiscpu_test_support::child;

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
            readers.counts().stripes[0].0[count].fetch_add(1, SeqCst);
            readers.retire(Box::new(Arc::clone(&value)));
            readers.collect();
            assert_eq!(Arc::strong_count(&value), 2);
            readers.counts().stripes[0].0[count].fetch_sub(1, SeqCst);
            readers.collect();
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }

    #[test]
    fn child_frees_values_that_lost_readers_may_use() {
        let (readers, value, step) = (Readers::default(), Arc::new(()), Barrier::new(2));
        let is_freed = || {
            readers.collect();
            Arc::strong_count(&value) == 1
        };
        let retire = || readers.retire(Box::new(Arc::clone(&value)));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _reader = readers.enter();
                step.wait();
                step.wait();
            });
            step.wait();
            retire();
            let child = child::status_of(|| {
                let later = readers.enter();
                let is_kept = !is_freed();
                drop(later);
                i32::from(!(is_kept && is_freed()))
            });
            let is_kept = !is_freed();
            step.wait();
            assert_eq!((child, is_kept), (0, true), "the wait status of the child");
        });
        assert!(is_freed());
    }

    #[test]
    fn child_keeps_values_for_readers_of_its_thread() {
        let (readers, value) = (Readers::default(), Arc::new(()));
        let is_freed = || {
            readers.collect();
            Arc::strong_count(&value) == 1
        };
        let reader = readers.enter();
        readers.retire(Box::new(Arc::clone(&value)));
        // In a child and in a child of a child, on threads with and without readers.
        child::assert_holds(|| {
            let is_kept = thread::scope(|scope| {
                let other = scope.spawn(|| {
                    drop(readers.enter());
                    !is_freed()
                });
                other.join().unwrap()
            });
            let later = readers.enter();
            child::assert_holds(|| {
                let is_kept = !is_freed();
                drop(reader);
                drop(later);
                is_kept && is_freed()
            });
            is_kept && is_freed()
        });
        assert!(is_freed());
    }

    #[test]
    fn child_threads_that_begin_at_once_use_one_count() {
        let readers = Readers::default();
        child::assert_holds(|| {
            let of_parent = readers.counts.load(Acquire);
            let _reader = readers.enter();
            let own = readers.counts.load(Acquire);
            // As in a thread that loaded the pointer before the reader entered.
            let late = readers.begin(of_parent);
            ptr::eq(late, own) && ptr::eq(readers.counts(), own)
        });
    }
}
