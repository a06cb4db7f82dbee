//! How much of the time guarding may take: one part in [`WORK_TIME_RATIO`], whatever the program does.
//!
//! A sampled block costs system calls and two walks of the stack, some 10,000 times what a block costs otherwise. One call in
//! 1,000 is little for most programs, and would be most of the time of one that does nothing but allocate. So each piece of work is
//! paid for by time in which no block is guarded.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of so much time, one part is for guarding. With one in 40 bursts of allocations took 2 to 11 % longer: what a program loses from
/// the caches of its CPU by a block that is guarded is not counted.
const WORK_TIME_RATIO: u64 = 100;

/// No further ahead than this is paid for: many frees at once, each of which is dear, stop guarding for a minute and not for more.
const DEBT_NS_MAX: u64 = 60_000_000_000;

/// When all work so far will have been paid for, by the clock that starts with the system.
pub(super) struct Throttle(AtomicU64);

/// When a piece of work started, by the time that its thread has had of a CPU. What it slept, or waited for a CPU, is not counted; what it waits until
/// other CPUs are interrupted is, because it turns in a loop meanwhile: in a virtual machine one of those may not be running, and that takes up to
/// some milliseconds.
pub(super) struct WorkStart(u64);

// Relaxed: the number orders nothing, and one that is a little old lets through a block too many.
impl Throttle {
    /// One that owes nothing.
    pub(super) const fn new() -> Throttle {
        Throttle(AtomicU64::new(0))
    }

    /// Whether a block may be guarded at `now_ns`.
    pub(super) fn allows(&self, now_ns: u64) -> bool {
        now_ns >= self.0.load(Relaxed)
    }

    /// Counts work that ends now.
    pub(super) fn charge(&self, started: WorkStart) {
        self.charge_at(now_ns(), thread_ns().saturating_sub(started.0));
    }

    fn charge_at(&self, now_ns: u64, work_ns: u64) {
        let price = work_ns.saturating_mul(WORK_TIME_RATIO);
        let paid = |paid: u64| paid.max(now_ns).saturating_add(price).min(now_ns + DEBT_NS_MAX);
        let _ = self.0.fetch_update(Relaxed, Relaxed, |before| Some(paid(before)));
    }
}

/// Begins a piece of work.
pub(super) fn start() -> WorkStart {
    WorkStart(thread_ns())
}

/// The time now.
pub(super) fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the structure, or leaves it.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_delays_further_work() {
        let throttle = Throttle::new();
        assert!(throttle.allows(0));
        throttle.charge_at(1_000, 100);
        assert!(!throttle.allows(999 + 100 * WORK_TIME_RATIO));
        assert!(throttle.allows(1_000 + 100 * WORK_TIME_RATIO));
        // Two at once cost twice as much.
        throttle.charge_at(20_000, 100);
        throttle.charge_at(20_000, 100);
        assert!(!throttle.allows(19_999 + 200 * WORK_TIME_RATIO));
        assert!(throttle.allows(20_000 + 200 * WORK_TIME_RATIO));
    }

    #[test]
    fn long_wait_is_charged_in_full() {
        let (throttle, tick_ns) = (Throttle::new(), 4_000_000);
        throttle.charge_at(0, tick_ns);
        assert!(!throttle.allows(tick_ns * WORK_TIME_RATIO - 1));
        assert!(throttle.allows(tick_ns * WORK_TIME_RATIO));
    }

    #[test]
    fn sleep_is_not_charged() {
        let (throttle, started, started_ns) = (Throttle::new(), start(), now_ns());
        sleep(Duration::from_millis(50));
        throttle.charge(started);
        // A hundred times of what it slept would be later by five seconds.
        assert!(throttle.allows(started_ns + 4_000_000_000));
    }

    #[test]
    fn delay_is_at_most_a_minute() {
        let throttle = Throttle::new();
        (0..1_000).for_each(|_| throttle.charge_at(7, u64::MAX / 2));
        assert!(!throttle.allows(6 + DEBT_NS_MAX) && throttle.allows(7 + DEBT_NS_MAX));
    }
}
