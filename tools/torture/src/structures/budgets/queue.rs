//! Budgets that threads queue for. Nobody waits who holds any of it, so each is served in the end.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::units::{Units, Way};
use super::{Actor, Structure};
use crate::wrong::{Checked, equal};

/// The limit, for each slot of many; and where few are let in.
const LIMITS: (u64, u64) = (48, 96);
const LIMITS_OF_FEW: (u64, u64) = (1_000, 2_000);
/// So many are few.
const FEW: u64 = 3;
/// So much everybody can have whatever the limit is; two of them cannot.
const MUCH: u64 = 900;
/// Who waits so long was forgotten: whoever is ahead holds what it was granted for microseconds.
const LONG: Duration = Duration::from_secs(30);

pub(in super::super) struct Queue {
    name: &'static str,
    units: Units,
    much: u64,
    doors: Option<Doors>,
}

/// Lets [`FEW`] in, and nobody else until these have left: whoever they forget stays forgotten.
#[derive(Debug, Default)]
struct Doors {
    /// How many have come and gone, of these few. SeqCst: who comes next comes after all of that.
    entered: AtomicU64,
    left: AtomicU64,
}

impl Doors {
    fn enter(&self) -> bool {
        let one_more = |entered| (entered < FEW).then_some(entered + 1);
        self.entered.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    fn leave(&self) {
        if self.left.fetch_add(1, SeqCst) + 1 == FEW {
            self.left.store(0, SeqCst);
            self.entered.store(0, SeqCst);
        }
    }
}

impl Queue {
    /// One that everybody comes to.
    pub(in super::super) fn of_many(slots: usize) -> Self {
        let limits = (LIMITS.0 * slots as u64, LIMITS.1 * slots as u64);
        let units = Units::new(limits, slots);
        Queue { name: "budget_queue", units, much: limits.0.min(MUCH), doors: None }
    }

    pub(in super::super) fn of_few(slots: usize) -> Self {
        let units = Units::new(LIMITS_OF_FEW, slots);
        Queue { name: "budget_queue_of_few", units, much: MUCH, doors: Some(Doors::default()) }
    }

    /// Mostly little, sometimes what waits for others.
    fn amount(&self, actor: &mut Actor) -> u64 {
        let most = if actor.random.u8(..4) == 0 { self.much } else { 16 };
        actor.random.u64(1..=most)
    }

    /// Not often: each wait may be for all others, who are slow where CPUs are emulated.
    fn use_some(&self, actor: &mut Actor) -> Checked {
        for _ in 0..1 << actor.random.u8(..4) {
            let n = self.amount(actor);
            let taken = self.units.acquire(actor, n, Way::Wait(LONG))?;
            equal("what is granted to who waits", n as i64, taken as i64)?;
            // Others come meanwhile, and find less.
            if actor.random.u8(..16) == 0 {
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

    fn use_or_look(&self, actor: &mut Actor) -> Checked {
        let polls = actor.random.u32(..4);
        match actor.random.u8(..64) {
            0 => actor.exactly(self.units.check_free()),
            1 => actor.exactly(self.units.check_held()).map(drop),
            2 => self.units.change_limit(actor),
            3..8 => self.use_some_at_once(actor, Way::Try),
            8..16 => self.use_some_at_once(actor, Way::Poll(polls)),
            16..20 => {
                let short = Duration::from_micros(u64::from(polls) * 20);
                self.use_some_at_once(actor, Way::Wait(short))
            }
            _ => self.use_some(actor),
        }
    }
}

impl Structure for Queue {
    fn name(&self) -> &'static str {
        self.name
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        let Some(doors) = &self.doors else { return self.use_or_look(actor) };
        if !doors.enter() {
            return Ok(());
        }
        let result = self.use_or_look(actor);
        doors.leave();
        result
    }

    /// Now and then all that is in a hand, so that a handler serves who waits.
    fn interrupt(&self, actor: &mut Actor) -> Checked {
        let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..=MUCH));
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
