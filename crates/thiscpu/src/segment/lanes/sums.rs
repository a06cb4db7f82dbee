//! Adding to lanes, and exact sums of them at one instant.
//!
//! Counters that are read together share an epoch, and with it the instant of a sum. Bank
//! `epoch % 2` of every lane is the active one. A sum takes three steps, and anybody may repeat
//! each of them:
//!
//! 1. Seal the inactive bank of every lane, and add up the counts. Nobody opens it in this epoch.
//! 2. Exchange the epoch for the next one. This is the instant of the sum.
//! 3. Seal the bank of every lane that was active, and add up the counts.
//!
//! An addition takes effect when its lane's word changes, or at step 2 if its thread loaded the
//! epoch before step 2 and changes the word after it. So each addition is before the instant, and
//! in a bank that step 3 seals, or after it, and in the other bank.
//!
//! Nothing has to be recovered if a process dies between any two instructions. An adder's addition
//! has happened or not. A sum that stopped after step 2 leaves open banks, which the next sum seals
//! in its step 1. A sum that is overtaken by another starts again.
//!
//! A sum may leave out counters of its epoch. For these it is a sum that died after it exchanged
//! the epoch, and that had found their inactive banks open. An open bank takes additions in every
//! epoch, so nothing is lost: the next sum of such a counter seals its inactive bank first.

use super::lane::{Added, Bank, Overtaken, Step};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use crate::sys::machine::Machine as _;

/// How often a bank is read again if adders save its delta meanwhile.
const READS_MAX: usize = if cfg!(thiscpu_model) { 1 } else { 1000 };

/// Where the banks of some counters are: in each lane, two for each counter, side by side.
#[derive(Clone, Copy, Debug)]
pub(in crate::segment) struct Lanes {
    /// The first counter's first bank in lane 0.
    first: *const Bank,
    /// The distance between two lanes, in bytes.
    stride: usize,
    count: u32,
}

impl Lanes {
    /// Describes banks in memory.
    ///
    /// # Safety
    ///
    /// In each of `count` lanes, which begin `stride` bytes apart, there are banks for each
    /// counter that the caller will name. They stay mapped while the value or a copy is used.
    pub(in crate::segment) unsafe fn new(first: *const Bank, stride: usize, count: u32) -> Lanes {
        Lanes { first, stride, count }
    }

    /// Returns the bank of `counter` in a lane that was active in `epoch`.
    #[inline(always)]
    fn bank(&self, lane: u32, counter: usize, epoch: u64) -> &Bank {
        let at = lane as usize * self.stride + (2 * counter + (epoch & 1) as usize) * 16;
        // SAFETY: callers pass lanes below the count and counters that exist, so `new`'s caller
        // guarantees the bank.
        unsafe { &*self.first.byte_add(at) }
    }

    /// Returns the number of lanes.
    #[inline(always)]
    pub(in crate::segment) fn len(&self) -> u32 {
        self.count
    }

    /// Adds to a counter, in a lane below their number.
    #[inline(always)]
    pub(in crate::segment) fn add(&self, counter: usize, epoch: &AtomicU64, lane: u32, n: i64) {
        // Acquire: pairs with the exchange in `try_sum`. The bank that this epoch names is accessed
        // after the epoch.
        let now = epoch.load(Acquire);
        let bank = self.bank(lane, counter, now);
        match if Bank::is_small(n) { bank.add_small(n) } else { Added::Void } {
            Added::Counted => {}
            Added::Full => bank.save(),
            Added::Void => self.add_slow(counter, epoch, lane, n),
        }
    }

    /// Adds an amount that is not small, or that met a sealed bank.
    #[cold]
    #[inline(never)]
    fn add_slow(&self, counter: usize, epoch: &AtomicU64, lane: u32, n: i64) {
        loop {
            // Acquire: as in `add`.
            let now = epoch.load(Acquire);
            let is_current = || epoch.load(Acquire) == now;
            if self.bank(lane, counter, now).add_saved(n, now, is_current) {
                return;
            }
            Host::pause();
        }
    }

    /// Returns the counts that were added to a counter, without a seal.
    ///
    /// As [`Bank::count`]: the counts have one sign. The result is between the values at the
    /// beginning and at the end of the call. `None` if adders save all the time.
    pub(in crate::segment) fn count(&self, counter: usize) -> Option<i64> {
        let mut sum = 0_i64;
        for lane in 0..self.count {
            for epoch in [0, 1] {
                let bank = self.bank(lane, counter, epoch);
                let count = (0..READS_MAX).find_map(|_| bank.count())?;
                sum = sum.wrapping_add(count);
            }
        }
        Some(sum)
    }

    /// Seals the banks of a step in every lane, and adds the counts to `sums`.
    ///
    /// `number` returns which counter a sum is that of.
    #[inline(always)]
    fn seal(
        &self,
        step: &Step<'_>,
        number: &impl Fn(usize) -> usize,
        sums: &mut [i64],
    ) -> Result<(), Overtaken> {
        for lane in 0..self.count {
            for (index, sum) in sums.iter_mut().enumerate() {
                let bank = self.bank(lane, number(index), step.sealed);
                *sum = sum.wrapping_add(bank.seal(step)?);
            }
        }
        Ok(())
    }
}

/// Stores the sums of all counters, as they were at one instant of the call.
///
/// A counter is in each of the lanes that `parts` returns. Those that it did not return before the
/// instant, but returns after it, came into use meanwhile, and the sum starts again.
pub(in crate::segment) fn sum(
    epoch: &AtomicU64,
    parts: impl Fn() -> [Option<Lanes>; 2],
    sums: &mut [i64],
) {
    loop {
        // Acquire: pairs with the exchange below.
        let now = epoch.load(Acquire);
        if try_sum(epoch, now, &parts, &|index| index, sums).is_ok() {
            return;
        }
        Host::pause();
    }
}

/// Stores the sums of some counters, unless others overtake it in each of some attempts.
///
/// `number` returns which counter a sum is that of. The other counters of this epoch are not
/// touched, and other sums of them stay exact.
pub(in crate::segment) fn sum_within(
    attempts: usize,
    epoch: &AtomicU64,
    lanes: Lanes,
    number: impl Fn(usize) -> usize,
    sums: &mut [i64],
) -> bool {
    let parts = || [Some(lanes), None];
    // Acquire: pairs with the exchange in `try_sum`.
    (0..attempts).any(|_| try_sum(epoch, epoch.load(Acquire), &parts, &number, sums).is_ok())
}

fn try_sum(
    epoch: &AtomicU64,
    now: u64,
    parts: &impl Fn() -> [Option<Lanes>; 2],
    number: &impl Fn(usize) -> usize,
    sums: &mut [i64],
) -> Result<(), Overtaken> {
    let next = now.wrapping_add(1);
    let in_use = parts();
    sums.fill(0);
    let before = Step { epoch, current: now, sealed: now.wrapping_sub(1) };
    for lanes in in_use.iter().flatten() {
        lanes.seal(&before, number, sums)?;
    }
    // AcqRel: releases the seals to adders that load the new epoch, and acquires those of the sum
    // that made the old one.
    epoch.compare_exchange(now, next, AcqRel, Acquire).map_err(|_| Overtaken)?;
    let after = Step { epoch, current: next, sealed: now };
    for lanes in in_use.iter().flatten() {
        lanes.seal(&after, number, sums)?;
    }
    // An add before the instant has put its lanes into use before it, so they are seen here.
    let is_complete = parts().iter().flatten().count() == in_use.iter().flatten().count();
    if is_complete { Ok(()) } else { Err(Overtaken) }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    // Twice what delta can hold, in amounts that are added to delta.
    #[test]
    fn full_delta_is_saved_before_it_overflows() {
        const AMOUNT: i64 = (1 << 15) - 1;
        const ADDS: i64 = 1 << 25;
        for sign in [1, -1] {
            let (epoch, banks) = (AtomicU64::new(0), [Bank::new(), Bank::new()]);
            // SAFETY: the two banks of one counter in one lane, which live until the end.
            let lanes = unsafe { Lanes::new(banks.as_ptr(), size_of_val(&banks), 1) };
            (0..ADDS).for_each(|_| lanes.add(0, &epoch, 0, sign * AMOUNT));
            let mut sums = [0];
            sum(&epoch, || [Some(lanes), None], &mut sums);
            assert_eq!(sums, [sign * AMOUNT * ADDS]);
        }
    }
}
