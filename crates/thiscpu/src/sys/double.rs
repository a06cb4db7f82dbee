//! Two words changed together by an atomic every CPU respects: what the atomic tier has in place
//! of sections, and slow lanes in every tier.

use core::cell::UnsafeCell;

/// Two 8-byte words, aligned to 16.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Double(UnsafeCell<[u64; 2]>);

// SAFETY: the words are only accessed by the assembly below, whose accesses are atomic.
unsafe impl Sync for Double {}

#[cfg(thiscpu_model)]
use crate::model::double as arch;

/// The first word alone.
///
/// To the language these are atomics of 8 bytes where others, in assembly, are of 16. To the processor
/// each is one access of aligned bytes, and all accesses to a byte have one order.
#[cfg(not(thiscpu_model))]
mod one_word {
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::{AcqRel, Relaxed};

    /// # Safety
    ///
    /// `word` is writable and aligned.
    #[inline(always)]
    pub(super) unsafe fn exchange_first(word: *mut u64, old: u64, new: u64) -> bool {
        // SAFETY: by this function's own contract; all accesses are atomic.
        unsafe { AtomicU64::from_ptr(word) }.compare_exchange(old, new, AcqRel, Relaxed).is_ok()
    }

    /// # Safety
    ///
    /// `word` is writable and aligned.
    #[inline(always)]
    pub(super) unsafe fn add_first(word: *mut u64, n: u64) -> u64 {
        // SAFETY: by this function's own contract; all accesses are atomic.
        unsafe { AtomicU64::from_ptr(word) }.fetch_add(n, AcqRel)
    }
}

#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
mod arch {
    use core::arch::asm;

    pub(super) use super::one_word::{add_first, exchange_first};

    /// Whether this machine has the exchange. All but the first x86-64 processors (2003) do.
    pub(crate) fn is_available() -> bool {
        std::arch::is_x86_feature_detected!("cmpxchg16b")
    }

    /// # Safety
    ///
    /// `word` is readable and aligned.
    #[inline(always)]
    pub(super) unsafe fn load(word: *const u64) -> u64 {
        let value;
        // SAFETY: one aligned load. It is an acquire, as every load is here; the assembly does not
        // promise to leave memory alone, so the compiler moves nothing across it.
        unsafe { asm!("mov {}, [{}]", out(reg) value, in(reg) word, options(nostack)) };
        value
    }

    /// # Safety
    ///
    /// `pair` is writable, aligned to 16, and [`is_available`].
    #[inline(always)]
    pub(super) unsafe fn exchange(pair: *mut u64, old: [u64; 2], new: [u64; 2]) -> bool {
        let done: u8;
        // SAFETY: one locked exchange of 16 aligned bytes, a full barrier. rbx, which the
        // instruction needs and the compiler reserves, is put back.
        unsafe {
            asm!(
                "xchg r8, rbx",
                "lock cmpxchg16b xmmword ptr [rsi]",
                "sete r9b",
                "mov rbx, r8",
                inout("r8") new[0] => _,
                in("rcx") new[1],
                inout("rax") old[0] => _,
                inout("rdx") old[1] => _,
                in("rsi") pair,
                lateout("r9b") done,
                options(nostack),
            );
        }
        done != 0
    }
}

#[cfg(all(target_arch = "aarch64", not(thiscpu_model)))]
mod arch {
    use core::arch::asm;
    use core::sync::atomic::Ordering::{AcqRel, Relaxed};

    use portable_atomic::AtomicU128;

    pub(super) use super::one_word::{add_first, exchange_first};

    /// Whether this machine has the exchange: every AArch64 does.
    pub(crate) fn is_available() -> bool {
        true
    }

    /// # Safety
    ///
    /// `word` is readable and aligned.
    #[inline(always)]
    pub(super) unsafe fn load(word: *const u64) -> u64 {
        let value;
        // SAFETY: one aligned load with acquire semantics; the compiler moves nothing across it.
        unsafe { asm!("ldar {}, [{}]", out(reg) value, in(reg) word, options(nostack)) };
        value
    }

    /// # Safety
    ///
    /// `pair` is writable and aligned to 16.
    #[inline(always)]
    pub(super) unsafe fn exchange(pair: *mut u64, old: [u64; 2], new: [u64; 2]) -> bool {
        let join = |[low, high]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
        // SAFETY: 16 writable bytes, aligned; concurrent loads are single words in assembly.
        let pair = unsafe { &*(pair as *const AtomicU128) };
        pair.compare_exchange(join(old), join(new), AcqRel, Relaxed).is_ok()
    }
}

pub(crate) fn is_available() -> bool {
    arch::is_available()
}

impl Double {
    pub(crate) const fn new(words: [u64; 2]) -> Self {
        Double(UnsafeCell::new(words))
    }

    /// Loads the second word, then the first, each with acquire ordering. The first may be newer.
    #[inline(always)]
    pub(crate) fn load(&self) -> [u64; 2] {
        let words = self.0.get().cast::<u64>();
        // SAFETY: both words are this value's, and aligned.
        unsafe {
            let second = arch::load(words.add(1));
            [arch::load(words), second]
        }
    }

    /// Loads the first word, with acquire ordering.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        // SAFETY: the word is this value's, and aligned.
        unsafe { arch::load(self.0.get().cast()) }
    }

    /// Replaces the first word if it is `old`, whatever the second is. Acquire and release.
    #[inline(always)]
    pub(crate) fn exchange_first(&self, old: u64, new: u64) -> bool {
        // SAFETY: the word is this value's, and aligned.
        unsafe { arch::exchange_first(self.0.get().cast(), old, new) }
    }

    /// Adds to the first word and returns what it was, whatever the second is. Acquire and release.
    #[inline(always)]
    pub(crate) fn add_first(&self, n: u64) -> u64 {
        // SAFETY: the word is this value's, and aligned.
        unsafe { arch::add_first(self.0.get().cast(), n) }
    }

    /// Replaces both words if they are `old`. Acquire and release.
    #[inline(always)]
    pub(crate) fn exchange(&self, old: [u64; 2], new: [u64; 2]) -> bool {
        // SAFETY: the words are this value's, aligned by its type. Every processor has
        // the exchange but the first x86-64 ones, which the tier's choice refuses.
        unsafe { arch::exchange(self.0.get().cast(), old, new) }
    }
}
