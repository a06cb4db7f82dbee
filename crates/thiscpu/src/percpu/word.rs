//! The types that a [`PerCpu`](crate::PerCpu) can hold, and the operations on each.

use crate::section::{Outcome, Processor, WordSections};
use crate::sys::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

mod sealed {
    /// Conversion to and from the bits of a word, on which all operations work.
    pub trait Bits: Copy {
        type Raw: Copy + PartialEq;
        fn to_raw(self) -> Self::Raw;
        fn from_raw(raw: Self::Raw) -> Self;
    }
}

pub(crate) use sealed::Bits;

/// A type that [`PerCpu`](crate::PerCpu) can hold: a pointer, or an integer of 1 to 8 bytes.
pub trait PerCpuWord: Bits<Raw: Raw> {}

/// An integer that [`PerCpu`](crate::PerCpu) can count in.
pub trait PerCpuInt: PerCpuWord {}

/// The sections on words of one width, and atomics for lanes that several CPUs share.
///
/// # Safety
///
/// The functions access exactly the bytes of this type.
///
/// Callers of a section guarantee that `item` is the word that sections take of an item of this
/// size, allocated during the call. Callers of the other functions guarantee that `address` is that
/// of a live, aligned word of this size, whose accesses are all atomic.
pub unsafe trait Raw: Copy + PartialEq {
    /// Adds to this lane's word.
    unsafe fn add(item: usize, n: Self) -> SectionOutcome;
    /// Adds to this lane's word, and returns its new value.
    unsafe fn add_return(item: usize, n: Self) -> (SectionOutcome, Self);
    /// Replaces this lane's word, and returns its old value.
    unsafe fn xchg(item: usize, new: Self) -> (SectionOutcome, Self);
    /// Replaces this lane's word if it is `old`, and returns its old value.
    unsafe fn cmpxchg(item: usize, old: Self, new: Self) -> (SectionOutcome, Self);
    /// Loads a word of any lane.
    unsafe fn load(address: usize) -> Self;
    /// Adds to a word of the shared lane, and returns its new value.
    unsafe fn atomic_add_return(address: usize, n: Self) -> Self;
    /// Replaces a word of the shared lane, and returns its old value.
    unsafe fn atomic_xchg(address: usize, new: Self) -> Self;
    /// Replaces a word of the shared lane if it is `old`.
    unsafe fn atomic_cmpxchg(address: usize, old: Self, new: Self) -> Result<(), Self>;
}

/// The outcome of a section, in a public type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SectionOutcome(pub(crate) Outcome);

macro_rules! raw {
    ($raw:ty, $atomic:ty) => {
        // SAFETY: the sections and atomics below are those of this width.
        unsafe impl Raw for $raw {
            #[inline(always)]
            unsafe fn add(item: usize, n: Self) -> SectionOutcome {
                // SAFETY: the caller guarantees that the item is allocated and of this size.
                SectionOutcome(unsafe { Processor::add(item, n) })
            }
            #[inline(always)]
            unsafe fn add_return(item: usize, n: Self) -> (SectionOutcome, Self) {
                // SAFETY: the caller guarantees that the item is allocated and of this size.
                let (outcome, value) = unsafe { Processor::add_return(item, n) };
                (SectionOutcome(outcome), value)
            }
            #[inline(always)]
            unsafe fn xchg(item: usize, new: Self) -> (SectionOutcome, Self) {
                // SAFETY: the caller guarantees that the item is allocated and of this size.
                let (outcome, value) = unsafe { Processor::xchg(item, new) };
                (SectionOutcome(outcome), value)
            }
            #[inline(always)]
            unsafe fn cmpxchg(item: usize, old: Self, new: Self) -> (SectionOutcome, Self) {
                // SAFETY: the caller guarantees that the item is allocated and of this size.
                let (outcome, value) = unsafe { Processor::cmpxchg(item, old, new) };
                (SectionOutcome(outcome), value)
            }
            // Loads are relaxed: `lanes` promises no order. The changes are AcqRel and pair with
            // each other: a change sees what threads did before earlier changes of this word, as it
            // does between sections of one CPU.
            unsafe fn load(address: usize) -> Self {
                // SAFETY: the caller guarantees that the word is alive, aligned and of this size.
                unsafe { (*(address as *const $atomic)).load(Relaxed) }
            }
            unsafe fn atomic_add_return(address: usize, n: Self) -> Self {
                // SAFETY: the caller guarantees that the word is alive, aligned and of this size.
                let before = unsafe { (*(address as *const $atomic)).fetch_add(n, AcqRel) };
                before.wrapping_add(n)
            }
            unsafe fn atomic_xchg(address: usize, new: Self) -> Self {
                // SAFETY: the caller guarantees that the word is alive, aligned and of this size.
                unsafe { (*(address as *const $atomic)).swap(new, AcqRel) }
            }
            unsafe fn atomic_cmpxchg(address: usize, old: Self, new: Self) -> Result<(), Self> {
                // SAFETY: the caller guarantees that the word is alive, aligned and of this size.
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
