//! A variable of which each CPU has its own.

use core::fmt;
use core::marker::PhantomData;

use super::shared::retry_or_shared;
use super::word::{PerCpuInt, PerCpuWord, Raw, SectionOutcome};
use crate::error::Error;
use crate::lanes::item::{Item, expect};
use crate::section::Outcome;

/// A word of which each CPU has its own, and operations on the one of the CPU that the calling
/// thread is on: the kernel's `this_cpu_add`, `this_cpu_add_return`, `this_cpu_xchg` and
/// `this_cpu_cmpxchg`.
///
/// An operation is one section: it cannot be torn by a signal handler, by another thread on the
/// same CPU or by a move to another CPU, and it costs no atomic instruction. **It is not an atomic
/// operation towards other CPUs**, which have their own words. A thread may be on another CPU by the
/// time the call returns; nothing but the one operation is tied to a CPU.
///
/// A thread that has no CPU of its own to work on (see [`tier`](crate::tier())) works on one more
/// word, the slow lane, with ordinary atomics. [`lanes`](PerCpu::lanes) shows it too.
///
/// Each operation takes one to two nanoseconds and touches one cache line of this CPU's. All are wait-free in
/// the rseq tiers (by way of the slow lane after some restarts) and lock-free in the atomic tier, block nobody, may be
/// called from signal handlers and after `fork`, and order nothing but themselves on their CPU. Dropping
/// the variable waits for threads that allocate or drop others. Each word starts as 0 or null. Memory: the
/// size of `T`, rounded up to 8 bytes, for each CPU that is used, and as much once more.
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

// SAFETY: the words are only changed by sections and atomics; a pointer in one is as shareable as
// the raw pointer that it is handed out as.
unsafe impl<T: PerCpuWord> Sync for PerCpu<T> {}
// SAFETY: as for Sync; nothing in it belongs to a thread.
unsafe impl<T: PerCpuWord> Send for PerCpu<T> {}

impl<T: PerCpuWord> PerCpu<T> {
    /// A variable that is 0 (or null) on every CPU. May wait for another thread that allocates.
    ///
    /// # Panics
    ///
    /// If there is no address space, or `THISCPU_TIER` is wrong.
    pub fn new() -> Self {
        expect(Self::try_new())
    }

    /// As [`new`](Self::new), but returns what is wrong.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddressSpace`], and what [`tier`](crate::tier()) returns.
    pub fn try_new() -> Result<Self, Error> {
        let size = size_of::<T::Raw>();
        Ok(PerCpu { item: Item::try_new(size, size)?, holds: PhantomData })
    }

    /// As sections take it.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn item(&self) -> usize {
        self.item.open()
    }

    /// The variable that this is [`item`](Self::item) of.
    ///
    /// # Safety
    ///
    /// It lives, and is dropped once.
    #[cfg(not(thiscpu_model))]
    pub(crate) unsafe fn of_item(item: usize) -> Self {
        // SAFETY: the caller's promise.
        let item = unsafe { Item::from_open(item, size_of::<T::Raw>()) };
        PerCpu { item, holds: PhantomData }
    }

    /// Puts `new` into this CPU's word and returns what was there.
    ///
    /// ```
    /// let slot = thiscpu::PerCpu::<*mut u8>::new();
    /// assert!(slot.xchg(std::ptr::null_mut()).is_null());
    /// ```
    #[inline(always)]
    pub fn xchg(&self, new: T) -> T {
        let (item, new) = (self.item.open(), new.to_raw());
        // SAFETY: the item is of this size and lives as long as `self`; its words are only changed
        // as a whole.
        let (SectionOutcome(mut outcome), mut value) = unsafe { T::Raw::xchg(item, new) };
        if outcome != Outcome::Committed {
            (outcome, value) = retry_or_shared(
                item,
                // SAFETY: as above.
                || unsafe { unwrap(T::Raw::xchg(item, new)) },
                // SAFETY: the address is that of a word of the item.
                |address| unsafe { T::Raw::atomic_xchg(address, new) },
            );
            debug_assert_eq!(outcome, Outcome::Committed);
        }
        T::from_raw(value)
    }

    /// Puts `new` into this CPU's word if that holds `old`.
    ///
    /// # Errors
    ///
    /// What the word holds instead; nothing is changed then.
    #[inline(always)]
    pub fn cmpxchg(&self, old: T, new: T) -> Result<(), T> {
        let (item, old, new) = (self.item.open(), old.to_raw(), new.to_raw());
        // SAFETY: as in `xchg`.
        let attempt = || unsafe { unwrap(T::Raw::cmpxchg(item, old, new)) };
        let (outcome, found) = match attempt() {
            done @ (Outcome::Committed | Outcome::Mismatch, _) => done,
            // SAFETY: the address is that of a word of the item.
            _ => retry_or_shared(item, attempt, |address| unsafe {
                T::Raw::atomic_cmpxchg(address, old, new).err().unwrap_or(old)
            }),
        };
        match outcome {
            Outcome::Committed if found == old => Ok(()),
            _ => Err(T::from_raw(found)),
        }
    }

    /// The words of all lanes, the slow lane first, each read at some moment; not a snapshot.
    ///
    /// As many as CPUs were used so far, and one.
    pub fn lanes(&self) -> impl Iterator<Item = T> + '_ {
        // SAFETY: the addresses are those of the item's words in accessible lanes.
        self.item.in_all_lanes().map(|address| T::from_raw(unsafe { T::Raw::load(address) }))
    }
}

impl<T: PerCpuInt> PerCpu<T> {
    /// Adds `n` to this CPU's word. Wraps.
    #[inline(always)]
    pub fn add(&self, n: T) {
        let (item, n) = (self.item.open(), n.to_raw());
        // SAFETY: as in `xchg`.
        if unsafe { T::Raw::add(item, n) }.0 != Outcome::Committed {
            retry_or_shared(
                item,
                // SAFETY: as in `xchg`.
                || unsafe { (T::Raw::add(item, n).0, ()) },
                // SAFETY: the address is that of a word of the item.
                |address| unsafe {
                    T::Raw::atomic_add_return(address, n);
                },
            );
        }
    }

    /// Adds `n` to this CPU's word and returns what it holds then. Wraps.
    ///
    /// ```
    /// let events = thiscpu::PerCpu::<u32>::new();
    /// assert_eq!(events.add_return(5), 5);
    /// ```
    #[inline(always)]
    pub fn add_return(&self, n: T) -> T {
        let (item, n) = (self.item.open(), n.to_raw());
        // SAFETY: as in `xchg`.
        let attempt = || unsafe { unwrap(T::Raw::add_return(item, n)) };
        let value = match attempt() {
            (Outcome::Committed, value) => value,
            // SAFETY: the address is that of a word of the item.
            _ => {
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
