//! Two adjacent words of each CPU that change together.

use core::fmt;
use core::marker::PhantomData;

use super::shared::retry_or_shared;
use crate::error::Error;
use crate::lanes::item::{Item, expect};
use crate::section::{Outcome, Processor, Sections as _, WordSections as _};
use crate::sys::atomic::{
    AtomicU64, AtomicU128,
    Ordering::{AcqRel, Acquire, Relaxed},
};

mod sealed {
    pub trait Half: Copy + PartialEq {
        fn widen(self) -> u64;
        fn narrow(word: u64) -> Self;
    }
}

/// A type that [`PerCpuPair`] can hold: an integer of 4 or 8 bytes.
pub trait PairWord: sealed::Half {}

macro_rules! half_words {
    ($($integer:ty as $unsigned:ty),*) => {$(
        impl sealed::Half for $integer {
            #[inline(always)]
            fn widen(self) -> u64 {
                self as $unsigned as u64
            }
            #[inline(always)]
            fn narrow(word: u64) -> Self {
                word as $integer
            }
        }
        impl PairWord for $integer {}
    )*};
}

half_words!(u32 as u32, i32 as u32, u64 as u64, i64 as u64, usize as u64, isize as u64);

/// A pair of adjacent words with separate values on each CPU, compared and replaced together.
///
/// This is the kernel's `this_cpu_cmpxchg_double` (Lameter, 2010). The exchange is one section with
/// one store of twice the width. To signal handlers, to other threads on the same CPU and to a
/// migration, it happens as a whole or not at all. **It is not atomic towards other CPUs**: they
/// have their own pairs, and reading this one from another CPU ([`lanes`](PerCpuPair::lanes)) reads
/// each word on its own. The type guarantees the alignment, and that the words are adjacent.
///
/// Without sections, the exchange is a 16-byte (or 8-byte) compare-exchange. It is wait-free in the
/// rseq tiers, and may be called from signal handlers and after `fork`. A pair takes 8 or 16 bytes
/// for each CPU in use, and once more for the shared lane.
///
/// ```
/// let list = thiscpu::PerCpuPair::<u64>::new();
/// // A retry loop, because the thread may migrate between two exchanges.
/// let mut expected = (0, 0);
/// while let Err(found) = list.cmpxchg_double(expected, (7, expected.1 + 1)) {
///     expected = found;
/// }
/// assert!(list.lanes().any(|pair| pair == (7, 1)));
/// ```
pub struct PerCpuPair<W: PairWord> {
    item: Item,
    holds: PhantomData<W>,
}

// SAFETY: pairs hold integers, and only sections and atomics access them.
unsafe impl<W: PairWord> Sync for PerCpuPair<W> {}
// SAFETY: only sections and atomics access the pairs, and nothing here belongs to a thread.
unsafe impl<W: PairWord> Send for PerCpuPair<W> {}

impl<W: PairWord> PerCpuPair<W> {
    /// Creates a pair that is (0, 0) on every CPU.
    ///
    /// May wait for another thread that creates or drops a per-CPU variable.
    ///
    /// # Panics
    ///
    /// If the system has no address space, or `THISCPU_TIER` is wrong.
    pub fn new() -> Self {
        expect(Self::try_new())
    }

    /// Creates a pair like [`new`](Self::new), but returns errors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoAddressSpace`], or an error of [`tier()`](crate::tier()).
    pub fn try_new() -> Result<Self, Error> {
        let size = 2 * size_of::<W>();
        Ok(PerCpuPair { item: Item::try_new(size, size)?, holds: PhantomData })
    }

    /// Replaces this CPU's pair with `new` if it is `old`.
    ///
    /// # Errors
    ///
    /// Returns the pair's value if it is not `old`; nothing is changed then.
    #[inline(always)]
    pub fn cmpxchg_double(&self, old: (W, W), new: (W, W)) -> Result<(), (W, W)> {
        let item = self.item.open();
        let attempt = || Self::attempt(item, old, new);
        let (outcome, found) = match attempt() {
            done @ (Outcome::Committed | Outcome::Mismatch, _) => done,
            _ => retry_or_shared(item, attempt, |address| Self::atomically(address, old, new)),
        };
        match outcome {
            Outcome::Committed if found == old => Ok(()),
            _ => Err(found),
        }
    }

    #[inline(always)]
    fn attempt(item: usize, old: (W, W), new: (W, W)) -> (Outcome, (W, W)) {
        if size_of::<W>() == 4 {
            // SAFETY: the item has 8 bytes, aligned to 8, and lives as long as the pair.
            let (outcome, found) =
                unsafe { Processor::cmpxchg(item, Self::join(old), Self::join(new)) };
            return (outcome, Self::split(found));
        }
        let new = [new.0.widen(), new.1.widen()];
        // SAFETY: the item has 16 bytes, aligned to 16, and lives as long as the pair.
        let (outcome, [first, second]) =
            unsafe { Processor::cmpxchg_double(item, [old.0.widen(), old.1.widen()], &new) };
        (outcome, (W::narrow(first), W::narrow(second)))
    }

    /// Exchanges the pair of a lane that several CPUs share, and returns its old value.
    fn atomically(address: usize, old: (W, W), new: (W, W)) -> (W, W) {
        if size_of::<W>() == 4 {
            // SAFETY: the address is that of the item in a lane: 8 bytes, aligned to 8.
            let pair = unsafe { &*(address as *const AtomicU64) };
            // AcqRel: whatever a pair leads to is visible to the thread that takes it, as it is
            // between sections of one CPU. The pairing site is this exchange on another thread,
            // here and below.
            let result = pair.compare_exchange(Self::join(old), Self::join(new), AcqRel, Acquire);
            return Self::split(result.unwrap_or_else(|found| found));
        }
        let bits = |pair: (W, W)| u128::from(pair.1.widen()) << 64 | u128::from(pair.0.widen());
        // SAFETY: the address is that of the item in a lane: 16 bytes, aligned to 16.
        let pair = unsafe { &*(address as *const AtomicU128) };
        let result = pair.compare_exchange(bits(old), bits(new), AcqRel, Acquire);
        let found = result.unwrap_or_else(|found| found);
        (W::narrow(found as u64), W::narrow((found >> 64) as u64))
    }

    fn join(pair: (W, W)) -> u64 {
        pair.1.widen() << 32 | pair.0.widen()
    }

    fn split(word: u64) -> (W, W) {
        (W::narrow(word & 0xffff_ffff), W::narrow(word >> 32))
    }

    /// Returns the pairs of all lanes, the shared lane first.
    ///
    /// Each word is read at a moment of its own, so this is not a snapshot.
    pub fn lanes(&self) -> impl Iterator<Item = (W, W)> + '_ {
        self.item.in_all_lanes().map(|address| {
            // SAFETY: the address is that of the item in an accessible lane. Sections may store to
            // it meanwhile, so these are atomic loads of whole aligned words.
            let word = |at: usize| unsafe { (*((address + at) as *const AtomicU64)).load(Relaxed) };
            match size_of::<W>() {
                4 => Self::split(word(0)),
                _ => (W::narrow(word(0)), W::narrow(word(8))),
            }
        })
    }
}

impl<W: PairWord> Default for PerCpuPair<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: PairWord + fmt::Debug> fmt::Debug for PerCpuPair<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lanes()).finish()
    }
}
