//! Numbers that a program's habits have nothing to do with.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// Begins the sequence somewhere else in each process. A forked child goes on with its parent's.
pub(super) fn init() {
    // SAFETY: returns the address of 16 random bytes that the kernel has put there, or 0.
    let given = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const u64;
    if !given.is_null() {
        // SAFETY: as above; they need not be aligned.
        SEQUENCE.store(unsafe { given.read_unaligned() }, Relaxed);
    }
}

/// The next one: a counter whose bits are mixed. Relaxed: each call gets another, which is all.
pub(super) fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = SEQUENCE.fetch_add(STEP, Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// One of `0..count`, which is not 0.
pub(crate) fn below(count: usize) -> usize {
    (next() % count as u64) as usize
}
