//! The time of threads that wait for each other, without the time that other programs took.
//!
//! A thread whose CPU another program has for a time slice also delays the thread that waits for
//! it. The delay of both is not the sum of the times that each waited for its CPU. So time is taken
//! in laps, short enough that such a stop stands out. From each stop, the time is subtracted that
//! both threads have waited for a CPU since the stop before. Waits that an allocator causes are not
//! in that time, so they stay, even if they stand out.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::cpu_wait::Waits;

/// A lap that takes more than this many times the usual is a stop.
const STOP_FACTOR: u64 = 10;

pub(super) struct Lap {
    ns: u64,
    /// How long threads have waited for a CPU since a lap last asked; 0 if this one did not.
    waited_ns: u64,
}

/// Counts objects in laps, and gives the laps to `all` when dropped.
pub(super) struct Stopwatch<'a> {
    all: &'a Mutex<Vec<Lap>>,
    waits: &'a Waits,
    laps: Vec<Lap>,
    /// The time of the shortest lap; 0 if there was none.
    min_ns: u64,
    /// How long threads had waited when a lap last asked.
    waited: Duration,
    began: Instant,
    count: u32,
}

impl<'a> Stopwatch<'a> {
    /// The number of counts in a lap.
    pub(super) const COUNT: u32 = 16;

    /// The number of laps that are kept; later ones are dropped.
    const LAPS_MAX: usize = 1 << 16;

    /// Makes a stopwatch with room for all laps, whose pages are touched as laps come.
    pub(super) fn new(all: &'a Mutex<Vec<Lap>>, waits: &'a Waits) -> Self {
        let laps = Vec::with_capacity(Self::LAPS_MAX);
        let (min_ns, waited) = (0, Duration::ZERO);
        Self { all, waits, laps, min_ns, waited, began: Instant::now(), count: 0 }
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
            // The usual time is unknown yet, but at least the shortest. The first lap always asks.
            if ns > STOP_FACTOR * self.min_ns {
                waited_ns = self.waited_since();
                // To ask takes some microseconds, which belong to no lap.
                now = Instant::now();
            }
            self.min_ns = if self.min_ns == 0 { ns } else { ns.min(self.min_ns) };
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

/// Returns the mean time of a lap in nanoseconds, or `None` if there are too few.
///
/// The first lap, which began before the slice, is left out, and a ninth of all, in which memory is
/// touched for the first time. A stop counts as a usual lap, as far as threads have waited for a
/// CPU in it.
pub(super) fn lap_ns(laps: &[Lap]) -> Option<f64> {
    let laps = laps.get(1 + laps.len() / 9..)?;
    let mut sorted: Vec<u64> = laps.iter().map(|lap| lap.ns).collect();
    sorted.sort_unstable();
    let usual = *sorted.get(sorted.len() / 2)?;
    let without_stop = |lap: &Lap| match lap.ns > STOP_FACTOR * usual {
        true => lap.ns - lap.waited_ns.min(lap.ns - usual),
        false => lap.ns,
    };
    Some(laps.iter().map(without_stop).sum::<u64>() as f64 / laps.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_subtracted_as_far_as_threads_have_waited() {
        let mean = |waited: [u64; 2]| {
            let laps = [9_000, 500, 10, 30, 20, 10_020, 1_020, 20, 20, 20].map(|ns| {
                let waited_ns = match ns {
                    10_020 => waited[0],
                    1_020 => waited[1],
                    // These are no stops.
                    _ => 7,
                };
                Lap { ns, waited_ns }
            });
            lap_ns(&laps).unwrap()
        };
        assert_eq!(mean([0, 0]), 11_160.0 / 8.0);
        assert_eq!(mean([4_000, 0]), 7_160.0 / 8.0);
        assert_eq!(mean([10_000, 1_000]), 20.0);
        // However long they waited in one stop, the other one and the usual time stay.
        assert_eq!(mean([0, 1_000_000]), 10_160.0 / 8.0);
        assert_eq!(lap_ns(&[]), None);
    }

    #[test]
    fn only_whole_laps_are_kept() {
        let (all, waits) = (Mutex::default(), Waits::default());
        let mut watch = Stopwatch::new(&all, &waits);
        (0..3 * Stopwatch::COUNT + 1).for_each(|_| watch.count());
        drop(watch);
        assert_eq!(all.into_inner().unwrap().len(), 3);
    }
}
