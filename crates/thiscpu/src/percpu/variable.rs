//! A word with a separate value on each CPU.

use core::fmt;
use core::marker::PhantomData;

use super::shared::retry_or_shared;
use super::word::{PerCpuInt, PerCpuWord, Raw, SectionOutcome};
use crate::error::Error;
use crate::lanes::item::{Item, expect};
use crate::section::Outcome;

/// A word with a separate value on each CPU.
///
/// Operations work on the word of the CPU that the calling thread is on. They are the kernel's
/// `this_cpu_add`, `this_cpu_add_return`, `this_cpu_xchg` and `this_cpu_cmpxchg`.
///
/// An operation is one section. A signal handler, another thread on the same CPU or a migration
/// never sees half of it, and it needs no atomic instruction. **It is not atomic towards other
/// CPUs**, which have their own words. The thread may be on another CPU by the time the call
/// returns; only the operation itself is tied to a CPU.
///
/// A thread without a lane (see [`tier()`](crate::tier())) works on one more word, in the shared
/// lane, by ordinary atomics. [`lanes`](PerCpu::lanes) includes that word.
///
/// Each operation takes 1 to 2 ns and touches one cache line of its CPU. In the rseq tiers it is
/// wait-free: after a bounded number of restarts it uses the shared lane. In the atomic tier it is
/// lock-free. Operations may be called from signal handlers and after `fork`.
///
/// What a thread did before it changed a word happens before the return of each later operation on
/// that word, also by a thread on another CPU to which the word has moved. Words of different CPUs
/// order nothing, and neither does `lanes`.
///
/// Each word starts as 0 or null. The variable takes the size of `T`, rounded up to 8 bytes, for
/// each CPU in use, and once more for the shared lane. Dropping it may wait for threads that create
/// or drop other variables.
///
/// ```
/// let hits = thiscpu::PerCpu::<u64>::new();
/// hits.add(1);
/// assert_eq!(hits.lanes().sum::<u64>(), 1);
/// ```
pub struct PerCpu<T: PerCpuWord> {
    item: Item,
    holds: PhantomData<T>,
}

// SAFETY: only sections and atomics access the words. A pointer in a word is handed out as a raw
// pointer, which its user must share correctly.
unsafe impl<T: PerCpuWord> Sync for PerCpu<T> {}
// SAFETY: only sections and atomics access the words, and nothing here belongs to a thread.
unsafe impl<T: PerCpuWord> Send for PerCpu<T> {}

impl<T: PerCpuWord> PerCpu<T> {
    /// Creates a variable that is 0 or null on every CPU.
    ///
    /// May wait for another thread that creates or drops one.
    ///
    /// # Panics
    ///
    /// If the system has no address space, or `THISCPU_TIER` is wrong.
    pub fn new() -> Self {
        expect(Self::try_new())
    }

    /// Creates a variable like [`new`](Self::new), but returns errors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoAddressSpace`], or an error of [`tier()`](crate::tier()).
    pub fn try_new() -> Result<Self, Error> {
        let size = size_of::<T::Raw>();
        Ok(PerCpu { item: Item::try_new(size, size)?, holds: PhantomData })
    }

    /// Returns the word that sections take.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn item(&self) -> usize {
        self.item.open()
    }

    /// Recreates a variable from the result of [`item`](Self::item).
    ///
    /// # Safety
    ///
    /// The variable is alive, and only one value of it is dropped.
    #[cfg(not(thiscpu_model))]
    pub(crate) unsafe fn of_item(item: usize) -> Self {
        // SAFETY: the caller guarantees that the variable is alive, so its item is allocated, and
        // that only one value of it is dropped.
        let item = unsafe { Item::from_open(item, size_of::<T::Raw>()) };
        PerCpu { item, holds: PhantomData }
    }

    /// Replaces this CPU's word with `new`, and returns its old value.
    ///
    /// ```
    /// let slot = thiscpu::PerCpu::<*mut u8>::new();
    /// assert!(slot.xchg(std::ptr::null_mut()).is_null());
    /// ```
    #[inline(always)]
    pub fn xchg(&self, new: T) -> T {
        let (item, new) = (self.item.open(), new.to_raw());
        // SAFETY: the item has this size and lives as long as `self`; all accesses are of whole
        // words.
        let (SectionOutcome(mut outcome), mut value) = unsafe { T::Raw::xchg(item, new) };
        if outcome != Outcome::Committed {
            (outcome, value) = retry_or_shared(
                item,
                // SAFETY: the item has this size and lives as long as `self`.
                || unsafe { unwrap(T::Raw::xchg(item, new)) },
                // SAFETY: the address is that of the item in a lane, a word of this size.
                |address| unsafe { T::Raw::atomic_xchg(address, new) },
            );
            debug_assert_eq!(outcome, Outcome::Committed);
        }
        T::from_raw(value)
    }

    /// Replaces this CPU's word with `new` if it is `old`.
    ///
    /// # Errors
    ///
    /// Returns the word's value if it is not `old`; nothing is changed then.
    #[inline(always)]
    pub fn cmpxchg(&self, old: T, new: T) -> Result<(), T> {
        let (item, old, new) = (self.item.open(), old.to_raw(), new.to_raw());
        // SAFETY: the item has this size and lives as long as `self`.
        let attempt = || unsafe { unwrap(T::Raw::cmpxchg(item, old, new)) };
        let (outcome, found) = match attempt() {
            done @ (Outcome::Committed | Outcome::Mismatch, _) => done,
            // SAFETY: the address is that of the item in a lane, a word of this size.
            _ => retry_or_shared(item, attempt, |address| unsafe {
                T::Raw::atomic_cmpxchg(address, old, new).err().unwrap_or(old)
            }),
        };
        match outcome {
            Outcome::Committed if found == old => Ok(()),
            _ => Err(T::from_raw(found)),
        }
    }

    /// Returns the words of all lanes, the shared lane first.
    ///
    /// Each word is read at a moment of its own, so this is not a snapshot. There is one word for
    /// each CPU used so far (with `mm_cid`, for each CPU used at once), and that of the shared
    /// lane.
    pub fn lanes(&self) -> impl Iterator<Item = T> + '_ {
        // SAFETY: the addresses are those of the item's words in accessible lanes, and the item
        // lives as long as `self`.
        self.item.in_all_lanes().map(|address| T::from_raw(unsafe { T::Raw::load(address) }))
    }
}

impl<T: PerCpuInt> PerCpu<T> {
    /// Adds `n` to this CPU's word, and wraps on overflow.
    #[inline(always)]
    pub fn add(&self, n: T) {
        let (item, n) = (self.item.open(), n.to_raw());
        // SAFETY: the item has this size and lives as long as `self`.
        if unsafe { T::Raw::add(item, n) }.0 != Outcome::Committed {
            retry_or_shared(
                item,
                // SAFETY: the item has this size and lives as long as `self`.
                || unsafe { (T::Raw::add(item, n).0, ()) },
                // SAFETY: the address is that of the item in a lane, a word of this size.
                |address| unsafe {
                    T::Raw::atomic_add_return(address, n);
                },
            );
        }
    }

    /// Adds `n` to this CPU's word, and returns its new value. Wraps on overflow.
    ///
    /// ```
    /// let events = thiscpu::PerCpu::<u32>::new();
    /// assert_eq!(events.add_return(5), 5);
    /// ```
    #[inline(always)]
    pub fn add_return(&self, n: T) -> T {
        let (item, n) = (self.item.open(), n.to_raw());
        // SAFETY: the item has this size and lives as long as `self`.
        let attempt = || unsafe { unwrap(T::Raw::add_return(item, n)) };
        let value = match attempt() {
            (Outcome::Committed, value) => value,
            _ => {
                // SAFETY: the address is that of the item in a lane, a word of this size.
                retry_or_shared(item, attempt, |address| unsafe {
                    T::Raw::atomic_add_return(address, n)
                })
                .1
            }
        };
        T::from_raw(value)
    }
}

#[inline(always)]
fn unwrap<R>((outcome, value): (SectionOutcome, R)) -> (Outcome, R) {
    (outcome.0, value)
}

impl<T: PerCpuWord> Default for PerCpu<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: PerCpuWord + fmt::Debug> fmt::Debug for PerCpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lanes()).finish()
    }
}
