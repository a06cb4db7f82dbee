//! Two adjacent words of this CPU, changed together.

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

/// A word that comes in pairs: 4 or 8 bytes.
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

/// Two adjacent words of which each CPU has its own, compared and replaced together: the kernel's
/// `this_cpu_cmpxchg_double` (Lameter, 2010).
///
/// The exchange is one section with one store of twice the width. Towards signal handlers, other
/// threads on the same CPU and moves to another CPU it happens at once or not at all. **It is not
/// an atomic operation that other CPUs respect**: they have pairs of their own, and a look at this
/// one from another CPU ([`lanes`](PerCpuPair::lanes)) is a look at each word by itself. The type
/// guarantees the alignment; there is no way to name two words that are not adjacent.
///
/// Where sections are missing, the same exchange is a 16-byte (or 8-byte) compare-exchange. Wait-free in
/// the rseq tiers; may be called from signal handlers and after `fork`. Memory: 8 or 16 bytes for each
/// CPU that is used, and as much once more.
///
/// ```
/// let list = thiscpu::PerCpuPair::<u64>::new();
/// // A retry loop, because the thread may move between the look and the exchange.
/// let mut seen = (0, 0);
/// while let Err(there) = list.cmpxchg_double(seen, (7, seen.1 + 1)) {
///     seen = there;
/// }
/// assert!(list.lanes().any(|pair| pair == (7, 1)));
/// ```
pub struct PerCpuPair<W: PairWord> {
    item: Item,
    holds: PhantomData<W>,
}

// SAFETY: pairs hold integers and are only changed by sections and atomics.
unsafe impl<W: PairWord> Sync for PerCpuPair<W> {}
// SAFETY: as for Sync; nothing in it belongs to a thread.
unsafe impl<W: PairWord> Send for PerCpuPair<W> {}

impl<W: PairWord> PerCpuPair<W> {
    /// A pair that is (0, 0) on every CPU. May wait for another thread that allocates.
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
        let size = 2 * size_of::<W>();
        Ok(PerCpuPair { item: Item::try_new(size, size)?, holds: PhantomData })
    }

    /// Replaces this CPU's pair by `new` if it is `old`.
    ///
    /// # Errors
    ///
    /// What the pair is instead; nothing is changed then.
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
            // SAFETY: the item is 8 bytes, aligned, and lives as long as its owner.
            let (outcome, found) =
                unsafe { Processor::cmpxchg(item, Self::join(old), Self::join(new)) };
            return (outcome, Self::split(found));
        }
        let new = [new.0.widen(), new.1.widen()];
        // SAFETY: the item is 16 bytes, aligned to 16, and lives as long as its owner.
        let (outcome, [first, second]) =
            unsafe { Processor::cmpxchg_double(item, [old.0.widen(), old.1.widen()], &new) };
        (outcome, (W::narrow(first), W::narrow(second)))
    }

    /// The exchange on a lane that is not one CPU's alone. What the pair was.
    fn atomically(address: usize, old: (W, W), new: (W, W)) -> (W, W) {
        if size_of::<W>() == 4 {
            // SAFETY: the address is that of the item in a lane: 8 bytes, aligned. AcqRel: as in
            // `word`.
            let pair = unsafe { &*(address as *const AtomicU64) };
            let result = pair.compare_exchange(Self::join(old), Self::join(new), AcqRel, Acquire);
            return Self::split(result.unwrap_or_else(|found| found));
        }
        let bits = |pair: (W, W)| u128::from(pair.1.widen()) << 64 | u128::from(pair.0.widen());
        // SAFETY: as above, 16 bytes, aligned to 16.
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

    /// The pairs of all lanes, the slow lane first; each word is read at some moment of its own.
    pub fn lanes(&self) -> impl Iterator<Item = (W, W)> + '_ {
        self.item.in_all_lanes().map(|address| {
            // SAFETY: the address is that of the item in an accessible lane; sections store to it
            // and the compiler may assume nothing about it, hence loads of whole aligned words.
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
