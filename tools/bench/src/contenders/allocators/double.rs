//! Two words that are changed together by one instruction.

use std::sync::atomic::{AtomicU64, Ordering::Acquire};

/// Two words, aligned for the exchange.
///
/// The language sees two 8-byte atomics, while the exchange, in assembly, accesses 16 bytes. The
/// processor sees single accesses to aligned bytes, and orders all accesses to each byte.
#[derive(Default)]
#[repr(C, align(16))]
pub(super) struct Double([AtomicU64; 2]);

impl Double {
    /// Loads the second word, then the first, which may be newer.
    #[inline(always)]
    pub(super) fn load(&self) -> [u64; 2] {
        // Acquire, both: pairs with the exchange that stored the word. The Acquire load of the
        // second word also keeps the load of the first behind it.
        let second = self.0[1].load(Acquire);
        [self.0[0].load(Acquire), second]
    }

    /// Replaces both words if they are `old`; returns whether it did.
    ///
    /// Acquire and release: pairs with the loads in `load`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn exchange(&self, old: [u64; 2], new: [u64; 2]) -> bool {
        let done: u8;
        // SAFETY: the locked exchange accesses only the 16 bytes of this value, which its type
        // aligns. The instruction needs rbx, which the compiler reserves; it is restored.
        // Processors without the instruction are refused when the program selects a tier.
        unsafe {
            core::arch::asm!(
                "xchg {new_first}, rbx",
                "lock cmpxchg16b xmmword ptr [{words}]",
                "sete {done}",
                "mov rbx, {new_first}",
                new_first = inout(reg) new[0] => _,
                words = in(reg) self.0.as_ptr(),
                done = out(reg_byte) done,
                in("rcx") new[1],
                inout("rax") old[0] => _,
                inout("rdx") old[1] => _,
                options(nostack),
            );
        }
        done != 0
    }

    /// Does the same where 128-bit atomics have a portable form.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub(super) fn exchange(&self, old: [u64; 2], new: [u64; 2]) -> bool {
        use portable_atomic::{AtomicU128, Ordering::AcqRel};
        let join = |[first, second]: [u64; 2]| u128::from(second) << 64 | u128::from(first);
        // SAFETY: the 16 bytes belong to this value, its type aligns them, and as atomics they may
        // be changed through a shared reference.
        let both = unsafe { &*self.0.as_ptr().cast::<AtomicU128>() };
        both.compare_exchange(join(old), join(new), AcqRel, Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Double;

    #[test]
    fn exchange_replaces_both_words_or_none() {
        let double = Double::default();
        assert!(double.exchange([0, 0], [1, 2]));
        for stale in [[0, 2], [1, 0], [0, 0], [2, 1]] {
            assert!(!double.exchange(stale, [7, 7]));
        }
        assert_eq!(double.load(), [1, 2]);
        assert!(double.exchange([1, 2], [3, 4]));
        assert_eq!(double.load(), [3, 4]);
    }
}
