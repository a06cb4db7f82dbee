//! Limits the time that guarding takes to one part in [`WORK_TIME_RATIO`].
//!
//! A sampled block costs system calls and two stack walks, about 10,000 times as much as an
//! ordinary block. With one call in 1,000 sampled, that is little for most programs, but most of
//! the time of a program that does nothing but allocate. So each piece of work is paid for by a
//! time in which no block is guarded.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One part in this many of the time may go to guarding.
///
/// With 40, bursts of allocations took 2 to 11 % longer. That is more than a fortieth because a
/// guarded block also evicts the program's data from the CPU's caches, which is not measured.
const WORK_TIME_RATIO: u64 = 100;

/// The longest time that work can be owed for.
///
/// Many frees at once, each of them expensive, stop guarding for a minute and not for longer.
const DEBT_NS_MAX: u64 = 60_000_000_000;

/// When all work so far will be paid for, by the monotonic clock.
pub(super) struct Throttle(AtomicU64);

/// When a piece of work started, by its thread's CPU time.
///
/// So time asleep, or waiting for a CPU, does not count. The time until other CPUs handle an
/// interrupt does, because the kernel spins meanwhile. In a virtual machine, that may take some
/// milliseconds, if the other CPU is not running.
pub(super) struct WorkStart(u64);

// Relaxed: no other memory depends on this number, and a slightly old one lets a block too many
// through.
impl Throttle {
    /// Creates a throttle that owes nothing.
    pub(super) const fn new() -> Throttle {
        Throttle(AtomicU64::new(0))
    }

    /// Returns whether a block may be guarded at `now_ns`.
    pub(super) fn allows(&self, now_ns: u64) -> bool {
        now_ns >= self.0.load(Relaxed)
    }

    /// Charges for work that ends now.
    pub(super) fn charge(&self, started: WorkStart) {
        self.charge_at(now_ns(), thread_ns().saturating_sub(started.0));
    }

    fn charge_at(&self, now_ns: u64, work_ns: u64) {
        let price = work_ns.saturating_mul(WORK_TIME_RATIO);
        let paid = |paid: u64| paid.max(now_ns).saturating_add(price).min(now_ns + DEBT_NS_MAX);
        let _ = self.0.fetch_update(Relaxed, Relaxed, |before| Some(paid(before)));
    }
}

/// Starts measuring a piece of work.
pub(super) fn start() -> WorkStart {
    WorkStart(thread_ns())
}

/// Returns the monotonic time.
pub(super) fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the CPU time of this thread.
fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to the structure or leaves it as it is.
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
        // Two pieces of work at the same time cost twice as much.
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
        // If the 50 ms of sleep were charged, the debt would be 5 s.
        assert!(throttle.allows(started_ns + 4_000_000_000));
    }

    #[test]
    fn delay_is_at_most_a_minute() {
        let throttle = Throttle::new();
        (0..1_000).for_each(|_| throttle.charge_at(7, u64::MAX / 2));
        assert!(!throttle.allows(6 + DEBT_NS_MAX) && throttle.allows(7 + DEBT_NS_MAX));
    }
}
