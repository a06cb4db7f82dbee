//! A budget whose limit is what all workers together may hold and no more, so that no refusal can be
//! right.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::units::{Units, Way};
use super::{Actor, Structure};
use crate::wrong::{Checked, equal, holds};

/// What each may hold. Also on many CPUs it is enough for lanes to be worth while.
const SHARE: u64 = 256;
/// The most that is acquired at once.
const AMOUNT_MAX: u64 = 64;
/// For so many turns workers hold what they may, and for as many nearly nothing.
const SEASON: u64 = 64;
/// Nobody ever waits so long.
const LONG: Duration = Duration::from_secs(30);

pub(in super::super) struct Shares {
    units: Units,
    /// What each worker holds, from before it asks until after it was released. SeqCst, so that the
    /// room which that leaves is there.
    shares: Box<[AtomicU64]>,
    turns: AtomicU64,
}

impl Shares {
    pub(in super::super) fn new(slots: usize) -> Self {
        let limit = SHARE * slots as u64;
        Shares {
            units: Units::new((limit, limit + limit / 4), slots),
            shares: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            turns: AtomicU64::new(0),
        }
    }

    fn room(&self, actor: &Actor) -> u64 {
        SHARE - self.shares[actor.slot].load(SeqCst)
    }

    /// Acquires some of what the worker may still hold.
    fn acquire(&self, actor: &mut Actor, way: Way) -> Checked {
        let n = actor.random.u64(1..=AMOUNT_MAX).min(self.room(actor));
        if n > 0 {
            self.shares[actor.slot].fetch_add(n, SeqCst);
            let taken = self.units.acquire(actor, n, way)?;
            equal("what is granted of a share", n as i64, taken as i64)?;
        }
        Ok(())
    }

    fn reserve(&self, actor: &mut Actor) -> Checked {
        let n = self.room(actor);
        let share = &self.shares[actor.slot];
        share.fetch_add(n, SeqCst);
        let is_there = self.units.reserve(actor, n)?;
        share.fetch_sub(n, SeqCst);
        holds("all of a share can be set aside", is_there)
    }

    fn release(&self, actor: &mut Actor, whose: usize, most: u64) {
        let n = self.units.release(actor, whose, most);
        self.shares[whose].fetch_sub(n, SeqCst);
    }

    fn trade(&self, actor: &mut Actor) -> Checked {
        // Relaxed would do: nothing follows from it.
        let turn = self.turns.fetch_add(1, SeqCst);
        let acquires = if (turn / SEASON).is_multiple_of(2) { 4 } else { 12 };
        for _ in 0..1 << actor.random.u8(..8) {
            if actor.random.u8(..16) < acquires {
                let way = match actor.random.u8(..8) {
                    0 => Way::UpTo,
                    1 => Way::Lease,
                    2 => Way::Wait(LONG),
                    _ => Way::Try,
                };
                self.acquire(actor, way)?;
            } else {
                let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..SHARE));
                self.release(actor, whose, most);
            }
        }
        Ok(())
    }
}

impl Structure for Shares {
    fn name(&self) -> &'static str {
        "budget_shares"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0 => actor.exactly(self.units.check_free()),
            1 => actor.exactly(self.units.check_held()).map(drop),
            // Never below what all may hold.
            2..4 => self.units.change_limit(actor),
            4..8 => self.reserve(actor),
            _ => self.trade(actor),
        }
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..AMOUNT_MAX));
        self.release(actor, whose, most);
        Ok(())
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        self.units.child(actor)
    }

    fn account(&mut self) -> Checked {
        self.units.account()
    }
}
