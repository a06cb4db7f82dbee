//! Random numbers that do not correlate with a program's behavior.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// Seeds the sequence differently in each process. A forked child continues its parent's.
pub(crate) fn init() {
    // SAFETY: getauxval has no preconditions. It returns the address of 16 random bytes that the
    // kernel has put there, or 0.
    let seed = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const u64;
    if !seed.is_null() {
        // SAFETY: the kernel guarantees 16 readable bytes at this address, of any alignment.
        SEQUENCE.store(unsafe { seed.read_unaligned() }, Relaxed);
    }
}

/// Returns the next number: a counter whose bits are mixed (SplitMix64).
pub(crate) fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    // Relaxed: each call must get another number, and no other memory depends on it.
    let mut mixed = SEQUENCE.fetch_add(STEP, Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns a number in `0..count`. `count` is not 0.
pub(crate) fn below(count: usize) -> usize {
    (next() % count as u64) as usize
}
