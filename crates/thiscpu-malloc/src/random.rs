//! Random numbers that do not correlate with a program's behavior.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::__internal;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);
/// The fork generation of the process that the sequence was seeded for; 0 before that.
static SEEDED_FOR: AtomicU32 = AtomicU32::new(0);

/// Makes the sequence differ from those of other processes, also of this one's parent.
#[cold]
fn seed(generation: u32) {
    // SAFETY: getpid and getauxval have no preconditions. getauxval returns the address of 16
    // random bytes that the kernel has put there, or 0.
    let (process, random) =
        unsafe { (libc::getpid(), libc::getauxval(libc::AT_RANDOM) as *const u64) };
    // SAFETY: the kernel guarantees 16 readable bytes at this address, of any alignment.
    let random = if random.is_null() { 0 } else { unsafe { random.read_unaligned() } };
    // Siblings have parts of one sequence, which begin far from each other. A second thread that
    // comes here at once adds the number again, which does no harm.
    SEQUENCE.fetch_add(random ^ mix(process as u64), Relaxed);
    // Release: pairs with the Acquire in `next`, whose number is then of the seeded sequence.
    SEEDED_FOR.store(generation, Release);
}

/// Returns the next number: a counter whose bits are mixed (SplitMix64).
pub(crate) fn next() -> u64 {
    let generation = __internal::generation();
    // Acquire: pairs with the Release in `seed`.
    if SEEDED_FOR.load(Acquire) != generation {
        seed(generation);
    }
    // Relaxed: each call must get another number, and no other memory depends on it.
    mix(SEQUENCE.fetch_add(STEP, Relaxed).wrapping_add(STEP))
}

fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns a number in `0..count`. `count` is not 0.
pub(crate) fn below(count: usize) -> usize {
    (next() % count as u64) as usize
}

#[cfg(test)]
mod tests {
    use thiscpu_test_support::child;

    use super::*;

    #[test]
    fn forked_children_have_sequences_of_their_own() {
        let before = next();
        let ahead: Vec<u64> = {
            let now = SEQUENCE.load(Relaxed);
            (1..1_000).map(|step| mix(now.wrapping_add(STEP.wrapping_mul(step)))).collect()
        };
        child::assert_holds(|| !ahead.contains(&next()));
        assert_ne!(next(), before);
    }
}
