//! A budget far from its limit: its lanes hold far more than any call wants, so only exact
//! questions recall them.

use super::units::{Call, Units};
use super::{Actor, Structure, delegate};
use crate::violation::{Checked, equal};

/// The limits, for each slot.
const LIMITS: [u64; 2] = [1 << 17, 1 << 18];
/// The most units that a worker holds, so half of the limit stays free.
const HELD_MAX: u64 = 1 << 15;
/// More units than a lane has.
const MUCH: u64 = 5_000;

pub(in super::super) struct FarFromLimit {
    units: Units,
    /// More units than the limit.
    too_many: u64,
}

impl FarFromLimit {
    pub(in super::super) fn new(slots: usize) -> Self {
        let limits = LIMITS.map(|limit| limit * slots as u64);
        FarFromLimit { units: Units::new(limits, slots), too_many: limits[1] + 1 }
    }

    fn acquire(&self, actor: &mut Actor) -> Checked {
        let n = match actor.random.u8(..32) {
            0 => actor.random.u64(1..MUCH),
            _ => actor.random.u64(1..64),
        };
        if self.units.held(actor.slot) + n > HELD_MAX {
            self.units.release(actor, actor.slot, HELD_MAX);
        }
        let call = if actor.random.u8(..8) == 0 { Call::UpTo } else { Call::Try };
        let taken = self.units.acquire(actor, n, call)?;
        equal("units granted far from the limit", n as i64, taken as i64)
    }

    fn trade(&self, actor: &mut Actor) -> Checked {
        for _ in 0..1 << actor.random.u8(..8) {
            if actor.random.bool() {
                self.acquire(actor)?;
            } else {
                self.units.release_some(actor, 1..=127)?;
            }
        }
        Ok(())
    }
}

impl Structure for FarFromLimit {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..3 => actor.exactly(self.units.check_available()),
            3..6 => actor.exactly(self.units.check_held()),
            6 => self.units.change_limit(actor),
            7 => self.units.acquire(actor, self.too_many, Call::Try).map(drop),
            _ => self.trade(actor),
        }
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.units.release_some(actor, 1..=MUCH)
    }

    delegate!();
}
