//! The time of threads that wait for each other, without what other programs took of it.
//!
//! A thread whose CPU is another program's for a time slice holds up the thread that waits for it as well, and how long both were
//! held up is not the sum of how long each waited for its CPU. So time is taken in laps so short that such a stop
//! stands out, and of each stop as much is taken off as both threads have waited for a CPU since the one before. What an allocator makes
//! them wait is not in that, so it stays, also where it stands out.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::cpu_wait::Waits;

/// So many times as long as is usual is a stop.
const MUCH: u64 = 10;

pub(super) struct Lap {
    ns: u64,
    /// How long threads have waited for a CPU since the last lap of which that was asked; 0 if it was not asked of this one.
    waited_ns: u64,
}

/// Whoever counts, and when its lap began. Its laps go to `all` when it is dropped.
pub(super) struct Stopwatch<'a> {
    all: &'a Mutex<Vec<Lap>>,
    waits: &'a Waits,
    laps: Vec<Lap>,
    /// What the shortest lap took; 0 if there was none.
    least_ns: u64,
    /// How long threads had waited when that was last asked.
    waited: Duration,
    began: Instant,
    count: u32,
}

impl<'a> Stopwatch<'a> {
    /// How often something is counted in a lap.
    pub(super) const COUNT: u32 = 16;

    /// So many laps are remembered; later ones are not.
    const LAPS_MAX: usize = 1 << 16;

    /// Memory for all laps is there from the beginning, and touched as laps come.
    pub(super) fn new(all: &'a Mutex<Vec<Lap>>, waits: &'a Waits) -> Self {
        let laps = Vec::with_capacity(Self::LAPS_MAX);
        let (least_ns, waited) = (0, Duration::ZERO);
        Self { all, waits, laps, least_ns, waited, began: Instant::now(), count: 0 }
    }

    #[inline(always)]
    pub(super) fn count(&mut self) {
        self.count += 1;
        if self.count == Self::COUNT {
            self.end_lap();
        }
    }

    fn end_lap(&mut self) {
        let mut now = Instant::now();
        if self.laps.len() < Self::LAPS_MAX {
            let ns = (now - self.began).as_nanos() as u64;
            let mut waited_ns = 0;
            // What is usual is not known yet, but that it is no less than the least. The first lap is always asked of.
            if ns > MUCH * self.least_ns {
                waited_ns = self.waited_since();
                // To ask takes some microseconds, which are nobody's.
                now = Instant::now();
            }
            self.least_ns = if self.least_ns == 0 { ns } else { ns.min(self.least_ns) };
            self.laps.push(Lap { ns, waited_ns });
        }
        (self.began, self.count) = (now, 0);
    }

    fn waited_since(&mut self) -> u64 {
        let before = mem::replace(&mut self.waited, self.waits.total());
        self.waited.saturating_sub(before).as_nanos() as u64
    }
}

impl Drop for Stopwatch<'_> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.laps);
    }
}

/// Nanoseconds that a lap took, in the mean of those after the first, which began before the slice, and a ninth, in which memory
/// is touched for the first time. None if there were none. Laps that took much longer than is usual are taken for usual ones, as far as
/// threads have waited for a CPU in them.
pub(super) fn lap_ns(laps: &[Lap]) -> Option<f64> {
    let laps = laps.get(1 + laps.len() / 9..)?;
    let mut sorted: Vec<u64> = laps.iter().map(|lap| lap.ns).collect();
    sorted.sort_unstable();
    let usual = *sorted.get(sorted.len() / 2)?;
    let without_stop = |lap: &Lap| match lap.ns > MUCH * usual {
        true => lap.ns - lap.waited_ns.min(lap.ns - usual),
        false => lap.ns,
    };
    Some(laps.iter().map(without_stop).sum::<u64>() as f64 / laps.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_taken_off_as_far_as_threads_have_waited_in_them() {
        let mean = |waited: [u64; 2]| {
            let laps = [9_000, 500, 10, 30, 20, 10_020, 1_020, 20, 20, 20].map(|ns| {
                let waited_ns = match ns {
                    10_020 => waited[0],
                    1_020 => waited[1],
                    // Not of a stop.
                    _ => 7,
                };
                Lap { ns, waited_ns }
            });
            lap_ns(&laps).unwrap()
        };
        assert_eq!(mean([0, 0]), 11_160.0 / 8.0);
        assert_eq!(mean([4_000, 0]), 7_160.0 / 8.0);
        assert_eq!(mean([10_000, 1_000]), 20.0);
        // Whatever they waited in one stop, another stays, and what is usual too.
        assert_eq!(mean([0, 1_000_000]), 10_160.0 / 8.0);
        assert_eq!(lap_ns(&[]), None);
    }

    #[test]
    fn laps_are_counted_whole() {
        let (all, waits) = (Mutex::default(), Waits::default());
        let mut watch = Stopwatch::new(&all, &waits);
        (0..3 * Stopwatch::COUNT + 1).for_each(|_| watch.count());
        drop(watch);
        assert_eq!(all.into_inner().unwrap().len(), 3);
    }
}
