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

use super::lane::{Added, Bank, Overtaken, Step};
use super::removable::{RemovableBank, Removed};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use crate::sys::machine::Machine as _;

/// How often a bank is read again if adders save its delta meanwhile.
const READS_MAX: usize = if cfg!(thiscpu_model) { 1 } else { 1000 };

/// Where the banks of some counters are: in each lane, two for each counter, side by side.
#[derive(Debug)]
pub(in crate::segment) struct Lanes<B = Bank> {
    /// The first counter's first bank in lane 0.
    first: *const B,
    /// The distance between two lanes, in bytes.
    stride: usize,
    count: u32,
}

impl<B> Clone for Lanes<B> {
    fn clone(&self) -> Lanes<B> {
        *self
    }
}

impl<B> Copy for Lanes<B> {}

impl<B> Lanes<B> {
    /// Describes banks in memory.
    ///
    /// # Safety
    ///
    /// In each of `count` lanes, which begin `stride` bytes apart, there are banks for each
    /// counter that the caller will name. They stay mapped while the value or a copy is used.
    pub(in crate::segment) unsafe fn new(first: *const B, stride: usize, count: u32) -> Lanes<B> {
        Lanes { first, stride, count }
    }

    /// Returns the bank of `counter` in a lane that was active in `epoch`.
    #[inline(always)]
    fn bank(&self, lane: u32, counter: usize, epoch: u64) -> &B {
        let at =
            lane as usize * self.stride + (2 * counter + (epoch & 1) as usize) * size_of::<B>();
        // SAFETY: callers pass lanes below the count and counters that exist, so `new`'s caller
        // guarantees the bank.
        unsafe { &*self.first.byte_add(at) }
    }

    /// Returns the number of lanes.
    #[inline(always)]
    pub(in crate::segment) fn len(&self) -> u32 {
        self.count
    }
}

impl Lanes {
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
    fn seal(&self, step: &Step<'_>, sums: &mut [i64]) -> Result<(), Overtaken> {
        for lane in 0..self.count {
            for (counter, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add(self.bank(lane, counter, step.sealed).seal(step)?);
            }
        }
        Ok(())
    }
}

impl Lanes<RemovableBank> {
    /// Adds to a counter of a generation, in a lane below their number.
    #[inline(always)]
    pub(in crate::segment) fn add_to(
        &self,
        counter: Removable,
        epoch: &AtomicU64,
        lane: u32,
        n: i64,
    ) -> Result<(), Removed> {
        loop {
            // Acquire, both: pairs with the exchange in `try_sum`, as in `add`.
            let now = epoch.load(Acquire);
            let is_current = || epoch.load(Acquire) == now;
            let bank = self.bank(lane, counter.number, now);
            if bank.add(n, counter.generation, now, is_current)? {
                return Ok(());
            }
            Host::pause();
        }
    }

    /// Returns the counts of a removable counter without a seal, as [`count`](Lanes::count) does.
    pub(in crate::segment) fn count_of(&self, counter: Removable) -> Option<Result<i64, Removed>> {
        let mut sum = 0_i64;
        for lane in 0..self.count {
            for epoch in [0, 1] {
                let bank = self.bank(lane, counter.number, epoch);
                match (0..READS_MAX).find_map(|_| bank.count(counter.generation))? {
                    Ok(count) => sum = sum.wrapping_add(count),
                    Err(Removed) => return Some(Err(Removed)),
                }
            }
        }
        Some(Ok(sum))
    }

    /// Seals all banks of a counter for ever, and returns its last value.
    ///
    /// No add succeeds after that. Anybody may repeat this. Returns `None` if another counter has
    /// the banks already.
    pub(in crate::segment) fn remove(&self, counter: Removable) -> Option<i64> {
        let banks = (0..self.count).flat_map(|lane| [(lane, 0), (lane, 1)]);
        banks.into_iter().try_fold(0_i64, |sum, (lane, epoch)| {
            let last = self.bank(lane, counter.number, epoch).remove(counter.generation)?;
            Some(sum.wrapping_add(last))
        })
    }

    /// Seals the banks of a step of some counters, and adds the counts to `sums`.
    fn seal_some(
        &self,
        counters: &[Removable],
        step: &Step<'_>,
        sums: &mut [Option<i64>],
    ) -> Result<(), Overtaken> {
        for lane in 0..self.count {
            for (counter, sum) in counters.iter().zip(&mut *sums) {
                let count = self.bank(lane, counter.number, step.sealed);
                let count = count.seal(counter.generation, step)?;
                *sum = sum.zip(count).map(|(sum, count)| sum.wrapping_add(count));
            }
        }
        Ok(())
    }
}

/// A counter that can be removed: its place, and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Removable {
    pub(in crate::segment) number: usize,
    pub(in crate::segment) generation: u64,
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
        let in_use = parts();
        sums.fill(0);
        let seal =
            |step: &Step<'_>| in_use.iter().flatten().try_for_each(|lanes| lanes.seal(step, sums));
        // An add before the instant has put its lanes into use before it, so they are seen here.
        let is_complete = || parts().iter().flatten().count() == in_use.iter().flatten().count();
        if try_sum(epoch, seal).is_ok() && is_complete() {
            return;
        }
        Host::pause();
    }
}

/// Stores the sums of some counters, as they were at one instant of the call.
///
/// The sum of a counter that is removed meanwhile is `None`. Returns false if other sums overtook
/// this one in each of some attempts.
pub(in crate::segment) fn sum_removable(
    attempts: usize,
    epoch: &AtomicU64,
    lanes: Lanes<RemovableBank>,
    counters: &[Removable],
    sums: &mut [Option<i64>],
) -> bool {
    (0..attempts).any(|_| {
        sums.fill(Some(0));
        try_sum(epoch, |step| lanes.seal_some(counters, step, sums)).is_ok()
    })
}

/// Seals the banks of one epoch, starts the next, and seals those that were active.
fn try_sum(
    epoch: &AtomicU64,
    mut seal: impl FnMut(&Step<'_>) -> Result<(), Overtaken>,
) -> Result<(), Overtaken> {
    // Acquire: pairs with the exchange below.
    let now = epoch.load(Acquire);
    let next = now.wrapping_add(1);
    seal(&Step { epoch, current: now, sealed: now.wrapping_sub(1) })?;
    // AcqRel: releases the seals to adders that load the new epoch, and acquires those of the sum
    // that made the old one.
    epoch.compare_exchange(now, next, AcqRel, Acquire).map_err(|_| Overtaken)?;
    seal(&Step { epoch, current: next, sealed: now })
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
