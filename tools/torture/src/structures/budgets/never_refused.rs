//! A budget whose limit is exactly the sum of the workers' shares, so every refusal is wrong.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use super::units::{Call, Units};
use super::{Actor, Structure, delegate};
use crate::violation::{Checked, equal, holds};

/// The most units that each worker holds. On many CPUs too, it is enough for per-CPU mode.
const SHARE: u64 = 256;
const AMOUNT_MAX: u64 = 64;
/// The number of steps during which workers hold their whole shares, and then almost nothing.
const PHASE_STEPS: u64 = 64;
/// A time that no call waits.
const LONG: Duration = Duration::from_secs(30);

pub(in super::super) struct NeverRefused {
    units: Units,
    /// The units of each worker, counted from before an acquire until after the release.
    ///
    /// SeqCst, so that the rest of the share is available.
    shares: Box<[AtomicU64]>,
    /// Relaxed: it only selects the phase.
    steps: AtomicU64,
}

impl NeverRefused {
    pub(in super::super) fn new(slots: usize) -> Self {
        let limit = SHARE * slots as u64;
        NeverRefused {
            units: Units::new([limit, limit + limit / 4], slots),
            shares: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            steps: AtomicU64::new(0),
        }
    }

    /// Returns the units that the worker may still acquire.
    fn room(&self, actor: &Actor) -> u64 {
        SHARE - self.shares[actor.slot].load(SeqCst)
    }

    /// Acquires some of the units that the worker may still acquire.
    fn acquire(&self, actor: &mut Actor, call: Call) -> Checked {
        let n = actor.random.u64(1..=AMOUNT_MAX).min(self.room(actor));
        if n > 0 {
            self.shares[actor.slot].fetch_add(n, SeqCst);
            let taken = self.units.acquire(actor, n, call)?;
            equal("units granted within a share", n as i64, taken as i64)?;
        }
        Ok(())
    }

    fn reserve(&self, actor: &mut Actor) -> Checked {
        let n = self.room(actor);
        let share = &self.shares[actor.slot];
        share.fetch_add(n, SeqCst);
        let is_reserved = self.units.reserve(actor, n)?;
        share.fetch_sub(n, SeqCst);
        holds("a whole share can be reserved", is_reserved)
    }

    /// Releases fewer than `end` units of a random worker.
    fn release(&self, actor: &mut Actor, end: u64) {
        let (whose, most) = (self.units.any_slot(actor), actor.random.u64(1..end));
        let n = self.units.release(actor, whose, most);
        self.shares[whose].fetch_sub(n, SeqCst);
    }

    fn trade(&self, actor: &mut Actor) -> Checked {
        let step = self.steps.fetch_add(1, Relaxed);
        let acquires = if (step / PHASE_STEPS).is_multiple_of(2) { 4 } else { 12 };
        for _ in 0..1 << actor.random.u8(..8) {
            if actor.random.u8(..16) < acquires {
                let call = match actor.random.u8(..8) {
                    0 => Call::UpTo,
                    1 => Call::Lease,
                    2 => Call::Wait(LONG),
                    _ => Call::Try,
                };
                self.acquire(actor, call)?;
            } else {
                self.release(actor, SHARE);
            }
        }
        Ok(())
    }
}

impl Structure for NeverRefused {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0 => actor.exactly(self.units.check_available()),
            1 => actor.exactly(self.units.check_held()),
            // The limit is never below the sum of all shares.
            2..4 => self.units.change_limit(actor),
            4..8 => self.reserve(actor),
            _ => self.trade(actor),
        }
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.release(actor, AMOUNT_MAX);
        Ok(())
    }

    delegate!();
}
