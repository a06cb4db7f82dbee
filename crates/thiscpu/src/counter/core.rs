//! What one counter and several counters at one instant have in common: a gate, a lock, and for
//! each counter a shared pair in each bank.

use super::cell::CounterCell;
use super::pair::{Pair, Seal};
use super::window::{Estimate, HALF_MIN};
use crate::lanes::{region, table};
use crate::quiesce::Gate;
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicBool, AtomicI64, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::{Machine as _, looks};
use crate::sys::startup;

/// Counters that share a gate, so that one flip is one instant for all of them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Core<const N: usize> {
    pub(super) gate: Gate,
    /// Held by whoever changes the gate.
    pub(super) lock: Lock,
    /// How many flips have begun.
    pub(super) flips: AtomicU32,
    /// The generation of the process that has freed what its parent's threads held.
    recovered: AtomicU32,
    pub(super) batch: Batch,
    /// Whether the last flip was given up half way, by a fork or by the panic of a fence that could
    /// not be had; `last` is then older than `flips` says.
    pub(super) flip_incomplete: AtomicBool,
    /// What each counter was at the last flip.
    pub(super) last: [AtomicI64; N],
    /// The slow lane: a pair for each counter in each bank.
    pub(super) shared: [[Pair; 2]; N],
}

/// How far a lane may drift from what it has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// [`DEFAULT_BATCH`] for each lane in use, rounded up: the more CPUs publish, the less often
    /// each does, so that the word they publish to does not become what they wait for.
    PerLane,
    /// 2 to this power.
    Fixed(u8),
    /// The counter never takes lanes.
    Disabled,
}

pub(crate) const DEFAULT_BATCH: u64 = 1024;

/// How often the shared pairs are looked at while they change. A flip needs some 50 ns between
/// opening one and freezing the other, unless it is interrupted there.
const MAX_READS: u32 = 1 + looks(63);

impl Batch {
    pub(crate) const fn of(batch: u64) -> Batch {
        match batch {
            0 | 1 => Batch::Disabled,
            _ if batch > 1 << 40 => Batch::Fixed(40),
            _ => Batch::Fixed(batch.next_power_of_two().trailing_zeros() as u8),
        }
    }

    pub(super) fn half(self) -> u64 {
        match self {
            Batch::PerLane => DEFAULT_BATCH * table::in_use().next_power_of_two() as u64,
            Batch::Fixed(power) => (1 << power).max(HALF_MIN),
            Batch::Disabled => HALF_MIN,
        }
    }
}

impl<const N: usize> Core<N> {
    /// One counter begins tight. Several begin spread, though without memory in the lanes: one
    /// exchange cannot read all of them, so there is no tight mode for them.
    pub(crate) const fn new(batch: Batch) -> Self {
        Core {
            gate: Gate::new(),
            lock: Lock::new(),
            flips: AtomicU32::new(0),
            recovered: AtomicU32::new(0),
            batch,
            flip_incomplete: AtomicBool::new(false),
            last: [const { AtomicI64::new(0) }; N],
            shared: [const {
                let active = if N == 1 { Seal::SHARED } else { Seal::OPEN };
                [Pair::new(active), Pair::new(Seal::SEALED)]
            }; N],
        }
    }

    /// The right to change the gate.
    pub(super) fn lock(&self) -> Guard<'_> {
        startup::tier_or_panic();
        let guard = self.lock.lock();
        self.recover_after_fork(&guard);
        guard
    }

    /// The same without waiting, for adders.
    pub(super) fn try_lock(&self) -> Option<Guard<'_>> {
        let guard = self.lock.try_lock()?;
        self.recover_after_fork(&guard);
        Some(guard)
    }

    /// The first holder after a fork frees what threads that were not copied hold. Sums need no
    /// healing: each step of a flip leaves every unit in exactly one place. The slack of a thread
    /// that was publishing stays too wide, which is still true.
    fn recover_after_fork(&self, _guard: &Guard<'_>) {
        if self.is_recovered() {
            return;
        }
        let gate = self.gate.look();
        if let Some(item) = gate.item() {
            self.release_claims(item);
        }
        // A flip that was cut in two may have left the inactive pairs open, and bounds wait for that.
        self.freeze_shared(gate.flipped().bank());
        // Release: pairs with the Acquire in `is_recovered`; claims are taken after they were freed.
        self.recovered.store(Host::generation(), Release);
    }

    /// Whether claims on lanes are those of this process, so that one may be taken.
    pub(super) fn is_recovered(&self) -> bool {
        self.recovered.load(Acquire) == Host::generation()
    }

    fn release_claims(&self, item: usize) {
        for index in 0..N {
            let cell = CounterCell::of(item, index);
            for lane in 1..=table::in_use() {
                cell.end_window_move(lane, 0);
                cell.end_window_move(lane, 1);
            }
            // Relaxed: nobody claims before `recovered` says so.
            cell.published_state().claims.store(0, Relaxed);
        }
    }

    /// Where counter `index` is, at one instant of this call. Never waits: after some looks during
    /// which flips, or threads that have no lane, changed the shared pairs, it is an estimate with
    /// all the slack there is.
    pub(super) fn estimate(&self, index: usize) -> Estimate {
        let mut estimate = 0;
        for _ in 0..MAX_READS {
            match self.try_estimate(index) {
                Ok(extent) => return extent,
                Err(value) => estimate = value,
            }
            Host::pause();
        }
        Estimate { value: estimate, slack: u64::MAX }
    }

    /// The same, or an estimate if the shared pairs change meanwhile.
    fn try_estimate(&self, index: usize) -> Result<Estimate, i64> {
        let [active, other] = self.active_first(index, self.gate.look().bank());
        // The gate may have been flipped since it was looked at, so the tight pair, if one is, may be
        // the one that was thought inactive.
        if let Some(now) = active.load_shared().or_else(|| other.load_shared()) {
            return Ok(Estimate { value: now.count, slack: 0 });
        }
        let (first, second) = (active.load(), other.load());
        if let Some(tight) = [first, second].iter().find(|pair| pair.seal.is_shared()) {
            return Err(tight.count);
        }
        let lanes = self.published(index);
        let value = lanes.value.wrapping_add(first.count).wrapping_add(second.count);
        // The inactive pair is frozen, except in the middle of a flip: then an add may still commit
        // to it that takes effect before the flip, and this would not be of one instant with the sum.
        // Both pairs are as they were, versions included, so they were so when `lanes` was loaded,
        // and the three belong together.
        match second.seal.is_sealed() && active.load() == first && other.load() == second {
            true => Ok(Estimate { value, ..lanes }),
            false => Err(value),
        }
    }

    /// What the lanes of counter `index` have published.
    fn published(&self, index: usize) -> Estimate {
        self.cell(index)
            .map_or(Estimate { value: 0, slack: 0 }, |cell| cell.published_state().estimate())
    }

    pub(super) fn active_first(&self, index: usize, bank: usize) -> [&Pair; 2] {
        [&self.shared[index][bank], &self.shared[index][1 - bank]]
    }

    /// The counter's cell, if it has lanes.
    pub(super) fn cell(&self, index: usize) -> Option<CounterCell> {
        self.gate.look().item().map(|item| CounterCell::of(item, index))
    }
}

impl<const N: usize> Drop for Core<N> {
    fn drop(&mut self) {
        if let (Some(item), Some(tier)) = (self.gate.look().item(), startup::chosen()) {
            region::lock().free(item, N * super::cell::bytes(tier));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_counter_is_a_cache_line() {
        assert_eq!(size_of::<crate::Counter>(), 64);
    }
}
