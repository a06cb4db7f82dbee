//! A budget that threads queue for. Nobody waits for it who holds any of it, so each is served in the end.

use std::time::Duration;

use super::units::{Units, Way};
use super::{Actor, Structure};
use crate::wrong::{Checked, equal};

/// The limit, for each slot.
const LIMITS: (u64, u64) = (48, 96);
/// So much everybody can have whatever the limit is, and the more slots there are the more fit in.
const AMOUNT_MAX: u64 = 200;
/// Who waits so long was forgotten: everybody ahead holds what it was granted for less than a
/// millisecond of its own time.
const LONG: Duration = Duration::from_secs(40);

pub(in super::super) struct Queue {
    units: Units,
    amount_max: u64,
}

impl Queue {
    pub(in super::super) fn new(slots: usize) -> Self {
        let limits = (LIMITS.0 * slots as u64, LIMITS.1 * slots as u64);
        Queue { units: Units::new(limits, slots), amount_max: limits.0.min(AMOUNT_MAX) }
    }

    /// Mostly little, sometimes what waits for others.
    fn amount(&self, actor: &mut Actor) -> u64 {
        let most = if actor.random.u8(..4) == 0 { self.amount_max } else { 16 };
        actor.random.u64(1..=most)
    }

    fn use_some(&self, actor: &mut Actor) -> Checked {
        for _ in 0..1 << actor.random.u8(..7) {
            let n = self.amount(actor);
            let taken = self.units.acquire(actor, n, Way::Wait(LONG))?;
            equal("what is granted to who waits", n as i64, taken as i64)?;
            // Others come meanwhile, and find less.
            if actor.random.u8(..32) == 0 {
                std::thread::yield_now();
            }
            self.units.release(actor, actor.slot, u64::MAX);
        }
        Ok(())
    }

    fn use_some_at_once(&self, actor: &mut Actor, way: Way) -> Checked {
        let n = self.amount(actor);
        self.units.acquire(actor, n, way)?;
        self.units.release(actor, actor.slot, u64::MAX);
        Ok(())
    }
}

impl Structure for Queue {
    fn name(&self) -> &'static str {
        "budget_queue"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        let polls = actor.random.u32(..4);
        match actor.random.u8(..64) {
            0 => actor.exactly(self.units.check_free()),
            1 => actor.exactly(self.units.check_held()).map(drop),
            2 => self.units.change_limit(actor),
            3..8 => self.use_some_at_once(actor, Way::Try),
            8..16 => self.use_some_at_once(actor, Way::Poll(polls)),
            16..20 => {
                let long = Duration::from_micros(u64::from(polls) * 20);
                self.use_some_at_once(actor, Way::Wait(long))
            }
            _ => self.use_some(actor),
        }
    }

    /// Now and then all that is in a hand, and whoever waits is served by a handler.
    fn interrupt(&self, actor: &mut Actor) -> Checked {
        let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..=AMOUNT_MAX));
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
