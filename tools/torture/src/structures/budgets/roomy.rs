//! A budget with plenty for all: its lanes hold far more than anybody wants, and only who asks exactly
//! recalls it.

use super::units::{Units, Way};
use super::{Actor, Structure};
use crate::wrong::{Checked, equal};

/// The limit, for each slot.
const LIMITS: (u64, u64) = (1 << 17, 1 << 18);
/// What a worker holds at most: half of the room stays.
const HELD_MAX: u64 = 1 << 15;
/// More than a lane has.
const MUCH: u64 = 5_000;

pub(in super::super) struct Roomy {
    units: Units,
    /// More than there are.
    too_many: u64,
}

impl Roomy {
    pub(in super::super) fn new(slots: usize) -> Self {
        let limits = (LIMITS.0 * slots as u64, LIMITS.1 * slots as u64);
        Roomy { units: Units::new(limits, slots), too_many: limits.1 + 1 }
    }

    fn acquire(&self, actor: &mut Actor) -> Checked {
        let n = match actor.random.u8(..32) {
            0 => actor.random.u64(1..MUCH),
            _ => actor.random.u64(1..64),
        };
        if self.units.held(actor.slot) + n > HELD_MAX {
            self.units.release(actor, actor.slot, HELD_MAX);
        }
        let way = if actor.random.u8(..8) == 0 { Way::UpTo } else { Way::Try };
        let taken = self.units.acquire(actor, n, way)?;
        equal("what is granted of plenty", n as i64, taken as i64)
    }

    fn trade(&self, actor: &mut Actor) -> Checked {
        for _ in 0..1 << actor.random.u8(..8) {
            if actor.random.bool() {
                self.acquire(actor)?;
            } else {
                let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..128));
                self.units.release(actor, whose, most);
            }
        }
        Ok(())
    }
}

impl Structure for Roomy {
    fn name(&self) -> &'static str {
        "budget_roomy"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..3 => actor.exactly(self.units.check_free()),
            3..6 => actor.exactly(self.units.check_held()).map(drop),
            6 => self.units.change_limit(actor),
            7 => self.units.acquire(actor, self.too_many, Way::Try).map(drop),
            _ => self.trade(actor),
        }
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..MUCH));
        self.units.release(actor, whose, most);
        Ok(())
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        self.units.child(actor)
    }

    fn account(&mut self) -> Checked {
        self.units.account()
    }
}
