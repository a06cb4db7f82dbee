//! The types that a lane can hold, and the sections and atomics on each.

use crate::section::{Outcome, Processor, WordSections};
use crate::sys::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

mod sealed {
    /// Sections on this type's width, and atomics for lanes that are not one CPU's alone. All work
    /// on the bits, which the implementing type converts to and from.
    pub trait Bits: Copy {
        type Raw: Copy + PartialEq;
        fn to_raw(self) -> Self::Raw;
        fn from_raw(raw: Self::Raw) -> Self;
    }
}

pub(crate) use sealed::Bits;

/// A type that [`PerCpu`](crate::PerCpu) can hold: an integer of 1, 2, 4 or 8 bytes, or a pointer.
pub trait PerCpuWord: Bits<Raw: Raw> {}

/// An integer that [`PerCpu`](crate::PerCpu) can count in.
pub trait PerCpuInt: PerCpuWord {}

/// What sections and atomics do for one width.
///
/// # Safety
///
/// `ALIGN` is the size of the type, and the functions treat exactly that many bytes.
pub unsafe trait Raw: Copy + PartialEq {
    #[doc(hidden)]
    const ZERO: Self;
    /// # Safety
    ///
    /// `item` is that of an item of this size as sections take it, allocated and not freed under way.
    #[doc(hidden)]
    unsafe fn add(item: usize, n: Self) -> SectionOutcome;
    /// # Safety
    ///
    /// As for `add`.
    #[doc(hidden)]
    unsafe fn add_return(item: usize, n: Self) -> (SectionOutcome, Self);
    /// # Safety
    ///
    /// As for `add`.
    #[doc(hidden)]
    unsafe fn xchg(item: usize, new: Self) -> (SectionOutcome, Self);
    /// # Safety
    ///
    /// As for `add`.
    #[doc(hidden)]
    unsafe fn cmpxchg(item: usize, old: Self, new: Self) -> (SectionOutcome, Self);
    /// # Safety
    ///
    /// `address` is a live, aligned word of this size that is only accessed as a whole.
    #[doc(hidden)]
    unsafe fn load(address: usize) -> Self;
    /// # Safety
    ///
    /// As for `load`.
    #[doc(hidden)]
    unsafe fn atomic_add_return(address: usize, n: Self) -> Self;
    /// # Safety
    ///
    /// As for `load`.
    #[doc(hidden)]
    unsafe fn atomic_xchg(address: usize, new: Self) -> Self;
    /// # Safety
    ///
    /// As for `load`.
    #[doc(hidden)]
    unsafe fn atomic_cmpxchg(address: usize, old: Self, new: Self) -> Result<(), Self>;
}

/// How a section ended.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SectionOutcome(pub(crate) Outcome);

macro_rules! raw {
    ($raw:ty, $atomic:ty) => {
        // SAFETY: the sections and atomics named are those of this width.
        unsafe impl Raw for $raw {
            const ZERO: Self = 0;
            #[inline(always)]
            unsafe fn add(item: usize, n: Self) -> SectionOutcome {
                // SAFETY: the caller's promise is the section's condition.
                SectionOutcome(unsafe { Processor::add(item, n) })
            }
            #[inline(always)]
            unsafe fn add_return(item: usize, n: Self) -> (SectionOutcome, Self) {
                // SAFETY: as in `add`.
                let (outcome, value) = unsafe { Processor::add_return(item, n) };
                (SectionOutcome(outcome), value)
            }
            #[inline(always)]
            unsafe fn xchg(item: usize, new: Self) -> (SectionOutcome, Self) {
                // SAFETY: as in `add`.
                let (outcome, value) = unsafe { Processor::xchg(item, new) };
                (SectionOutcome(outcome), value)
            }
            #[inline(always)]
            unsafe fn cmpxchg(item: usize, old: Self, new: Self) -> (SectionOutcome, Self) {
                // SAFETY: as in `add`.
                let (outcome, value) = unsafe { Processor::cmpxchg(item, old, new) };
                (SectionOutcome(outcome), value)
            }
            // Relaxed loads and adds: a lane's count orders nothing else. The exchanges are AcqRel
            // so that what they hand over (a pointer) comes with its contents, as it does between
            // sections of one CPU.
            unsafe fn load(address: usize) -> Self {
                // SAFETY: the caller promises a live word of this width.
                unsafe { (*(address as *const $atomic)).load(Relaxed) }
            }
            unsafe fn atomic_add_return(address: usize, n: Self) -> Self {
                // SAFETY: as in `load`.
                let before = unsafe { (*(address as *const $atomic)).fetch_add(n, Relaxed) };
                before.wrapping_add(n)
            }
            unsafe fn atomic_xchg(address: usize, new: Self) -> Self {
                // SAFETY: as in `load`.
                unsafe { (*(address as *const $atomic)).swap(new, AcqRel) }
            }
            unsafe fn atomic_cmpxchg(address: usize, old: Self, new: Self) -> Result<(), Self> {
                // SAFETY: as in `load`.
                let word = unsafe { &*(address as *const $atomic) };
                word.compare_exchange(old, new, AcqRel, Acquire).map(|_| ())
            }
        }
    };
}

raw!(u8, AtomicU8);
raw!(u16, AtomicU16);
raw!(u32, AtomicU32);
raw!(u64, AtomicU64);

macro_rules! integers {
    ($($integer:ty => $raw:ty),* $(,)?) => {$(
        impl Bits for $integer {
            type Raw = $raw;
            #[inline(always)]
            fn to_raw(self) -> $raw {
                self as $raw
            }
            #[inline(always)]
            fn from_raw(raw: $raw) -> Self {
                raw as $integer
            }
        }
        impl PerCpuWord for $integer {}
        impl PerCpuInt for $integer {}
    )*};
}

integers!(
    u8 => u8, i8 => u8, u16 => u16, i16 => u16, u32 => u32, i32 => u32,
    u64 => u64, i64 => u64, usize => u64, isize => u64,
);

impl<T> Bits for *mut T {
    type Raw = u64;
    #[inline(always)]
    fn to_raw(self) -> u64 {
        self.expose_provenance() as u64
    }
    #[inline(always)]
    fn from_raw(raw: u64) -> Self {
        core::ptr::with_exposed_provenance_mut(raw as usize)
    }
}

impl<T> PerCpuWord for *mut T {}
