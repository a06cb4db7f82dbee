//! How much of the time guarding may take: one part in [`SHARE`], whatever the program does.
//!
//! A sampled block costs system calls and two walks of the stack, some 10,000 times what a block costs otherwise. One call in
//! 1,000 is little for most programs, and would be most of the time of one that does nothing but allocate. So each piece of work is
//! paid for by time in which no block is guarded.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of so much time, one part is for guarding. With one in 40 bursts of allocations took 2 to 11 % longer: what a program loses from
/// the caches of its CPU by a block that is guarded is not counted.
const SHARE: u64 = 100;

/// What a piece of work counts as at most: if it took longer, its thread was not running. What it waits for other CPUs to be
/// interrupted is counted: in a virtual machine one of those may not be running, and that takes up to some milliseconds.
const WORK_NS_MAX: u64 = 10_000_000;

/// When all work so far will have been paid for, by the clock that starts with the system.
pub(super) struct Pace(AtomicU64);

// Relaxed: the number orders nothing, and one that is a little old lets through a block too many.
impl Pace {
    /// One that owes nothing.
    pub(super) const fn new() -> Pace {
        Pace(AtomicU64::new(0))
    }

    /// Whether a block may be guarded at `now_ns`.
    pub(super) fn allows(&self, now_ns: u64) -> bool {
        now_ns >= self.0.load(Relaxed)
    }

    /// Counts work that was done between two times.
    pub(super) fn charge(&self, start_ns: u64, end_ns: u64) {
        let price = end_ns.saturating_sub(start_ns).min(WORK_NS_MAX) * SHARE;
        let _ = self.0.fetch_update(Relaxed, Relaxed, |paid| Some(paid.max(start_ns) + price));
    }
}

/// The time now.
pub(super) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_paid_for_by_time_without_it() {
        let pace = Pace::new();
        assert!(pace.allows(0));
        pace.charge(1_000, 1_100);
        assert!(!pace.allows(999 + 100 * SHARE));
        assert!(pace.allows(1_000 + 100 * SHARE));
        // Two at once cost twice as much.
        pace.charge(20_000, 20_100);
        pace.charge(20_000, 20_100);
        assert!(!pace.allows(19_999 + 200 * SHARE));
        assert!(pace.allows(20_000 + 200 * SHARE));
    }

    #[test]
    fn waiting_for_another_cpu_is_paid_for() {
        let (pace, tick) = (Pace::new(), 4_000_000);
        pace.charge(0, tick);
        assert!(!pace.allows(tick * SHARE - 1));
        assert!(pace.allows(tick * SHARE));
    }

    #[test]
    fn a_thread_that_slept_is_not_charged_for_it() {
        let pace = Pace::new();
        pace.charge(0, 1_000_000_000);
        assert!(pace.allows(SHARE * WORK_NS_MAX));
    }
}
