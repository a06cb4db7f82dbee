//! Two adjacent words that all CPUs change together, by a 16-byte compare-exchange.
//!
//! The atomic tier uses it instead of sections, and shared lanes use it in every tier.

use core::cell::UnsafeCell;

#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Double(UnsafeCell<[u64; 2]>);

// SAFETY: every access of the words below is atomic.
unsafe impl Sync for Double {}

#[cfg(thiscpu_model)]
use crate::model::double as arch;

#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
mod arch {
    use core::arch::asm;

    /// Returns whether this processor has the exchange; all but the first x86-64 ones (2003) do.
    pub(crate) fn is_available() -> bool {
        std::arch::is_x86_feature_detected!("cmpxchg16b")
    }

    /// Loads a word, with acquire ordering.
    ///
    /// # Safety
    ///
    /// `word` is readable and aligned.
    #[inline(always)]
    pub(super) unsafe fn load(word: *const u64) -> u64 {
        let value;
        // SAFETY: one aligned load of readable memory. Every load is an acquire on x86-64, and the
        // compiler moves no access across the assembly, because it may access memory.
        unsafe { asm!("mov {}, [{}]", lateout(reg) value, in(reg) word, options(nostack)) };
        value
    }

    /// Replaces the first word if it is `old`.
    ///
    /// # Safety
    ///
    /// `word` is writable and aligned.
    #[inline(always)]
    pub(super) unsafe fn exchange_first(word: *mut u64, old: u64, new: u64) -> bool {
        let done: u8;
        // SAFETY: one locked exchange of 8 aligned, writable bytes; it is a full barrier.
        unsafe {
            asm!(
                "lock cmpxchg qword ptr [{word}], {new}",
                "sete {done}",
                word = in(reg) word,
                new = in(reg) new,
                done = lateout(reg_byte) done,
                inout("rax") old => _,
                options(nostack),
            );
        }
        done != 0
    }

    /// Adds to the first word and returns its old value.
    ///
    /// # Safety
    ///
    /// `word` is writable and aligned.
    #[inline(always)]
    pub(super) unsafe fn add_first(word: *mut u64, n: u64) -> u64 {
        let old;
        // SAFETY: one locked addition to 8 aligned, writable bytes; it is a full barrier.
        unsafe {
            asm!(
                "lock xadd qword ptr [{word}], {n}",
                word = in(reg) word,
                n = inout(reg) n => old,
                options(nostack),
            );
        }
        old
    }

    /// Replaces a pair if it is `old`.
    ///
    /// # Safety
    ///
    /// `pair` is writable and aligned to 16, and [`is_available`] returns true.
    #[inline(always)]
    pub(super) unsafe fn exchange(pair: *mut u64, old: [u64; 2], new: [u64; 2]) -> bool {
        let done: u8;
        // SAFETY: one locked exchange of 16 aligned, writable bytes; it is a full barrier. The
        // compiler reserves rbx, which the instruction needs, so the assembly restores it.
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

    /// Returns true: every AArch64 processor has the exchange.
    pub(crate) fn is_available() -> bool {
        true
    }

    /// Loads a word, with acquire ordering.
    ///
    /// # Safety
    ///
    /// `word` is readable and aligned.
    #[inline(always)]
    pub(super) unsafe fn load(word: *const u64) -> u64 {
        let value;
        // SAFETY: one aligned load-acquire of readable memory. The compiler moves no access across
        // the assembly, because it may access memory.
        unsafe { asm!("ldar {}, [{}]", out(reg) value, in(reg) word, options(nostack)) };
        value
    }

    /// Replaces the first word of a pair if it is `old`, by an exchange of the pair.
    ///
    /// # Safety
    ///
    /// `word` is the first word of a pair that is writable and aligned to 16.
    #[inline(always)]
    pub(super) unsafe fn exchange_first(word: *mut u64, old: u64, new: u64) -> bool {
        loop {
            // SAFETY: the caller guarantees both words of the pair.
            let second = unsafe { load(word.add(1)) };
            // SAFETY: the caller guarantees a writable, aligned pair.
            if unsafe { exchange(word, [old, second], [new, second]) } {
                return true;
            }
            // SAFETY: the caller guarantees the first word.
            if unsafe { load(word) } != old {
                return false;
            }
        }
    }

    /// Adds to the first word of a pair, by exchanges of the pair, and returns its old value.
    ///
    /// # Safety
    ///
    /// `word` is the first word of a pair that is writable and aligned to 16.
    #[inline(always)]
    pub(super) unsafe fn add_first(word: *mut u64, n: u64) -> u64 {
        loop {
            // SAFETY: the caller guarantees both words of the pair.
            let (second, first) = unsafe { (load(word.add(1)), load(word)) };
            // SAFETY: the caller guarantees a writable, aligned pair.
            if unsafe { exchange(word, [first, second], [first.wrapping_add(n), second]) } {
                return first;
            }
        }
    }

    /// Replaces a pair if it is `old`.
    ///
    /// # Safety
    ///
    /// `pair` is writable and aligned to 16.
    #[inline(always)]
    pub(super) unsafe fn exchange(pair: *mut u64, old: [u64; 2], new: [u64; 2]) -> bool {
        let join = |[low, high]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
        // SAFETY: the 16 bytes are writable and aligned; concurrent loads are of whole words, in
        // assembly.
        let pair = unsafe { &*(pair as *const AtomicU128) };
        pair.compare_exchange(join(old), join(new), AcqRel, Relaxed).is_ok()
    }
}

pub(crate) use arch::is_available;

impl Double {
    pub(crate) const fn new(words: [u64; 2]) -> Self {
        Double(UnsafeCell::new(words))
    }

    /// Loads the second word, then the first, which may be newer. Acquire ordering, each.
    #[inline(always)]
    pub(crate) fn load(&self) -> [u64; 2] {
        let words = self.0.get().cast::<u64>();
        // SAFETY: both words are this value's, and its type aligns them.
        unsafe {
            let second = arch::load(words.add(1));
            [arch::load(words), second]
        }
    }

    /// Loads the first word, with acquire ordering.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        // SAFETY: the word is this value's, and its type aligns it.
        unsafe { arch::load(self.0.get().cast()) }
    }

    /// Loads the second word, with acquire ordering.
    #[inline(always)]
    pub(crate) fn second(&self) -> u64 {
        // SAFETY: the word is this value's, and its type aligns it.
        unsafe { arch::load(self.0.get().cast::<u64>().add(1)) }
    }

    /// Replaces the first word if it is `old`, with acquire and release ordering.
    #[inline(always)]
    pub(crate) fn exchange_first(&self, old: u64, new: u64) -> bool {
        // SAFETY: the word is this value's, and its type aligns it.
        unsafe { arch::exchange_first(self.0.get().cast(), old, new) }
    }

    /// Adds to the first word and returns its old value, with acquire and release ordering.
    #[inline(always)]
    pub(crate) fn add_first(&self, n: u64) -> u64 {
        // SAFETY: the word is this value's, and its type aligns it.
        unsafe { arch::add_first(self.0.get().cast(), n) }
    }

    /// Replaces both words if they are `old`, with acquire and release ordering.
    #[inline(always)]
    pub(crate) fn exchange(&self, old: [u64; 2], new: [u64; 2]) -> bool {
        // SAFETY: the words are this value's, and its type aligns them to 16. Start-up has checked
        // that this processor has the exchange.
        unsafe { arch::exchange(self.0.get().cast(), old, new) }
    }
}
