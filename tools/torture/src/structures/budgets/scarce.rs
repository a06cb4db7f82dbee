//! A budget whose limit is always in reach, and moves up and down below what is held.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::units::{Units, Way};
use super::{Actor, Structure};
use crate::wrong::Checked;

/// The limit, for each slot. On many CPUs it is no more than what lanes are worth while for.
const LIMITS: (u64, u64) = (16, 512);
const AMOUNT_MAX: u64 = 64;
const WAIT_MICROS_MAX: u64 = 300;
/// For so many turns workers mostly acquire, and for as many they mostly release: it becomes tight, and
/// loose again.
const SEASON: u64 = 64;

pub(in super::super) struct Scarce {
    units: Units,
    /// Relaxed: nothing follows from it.
    turns: AtomicU64,
}

impl Scarce {
    pub(in super::super) fn new(slots: usize) -> Self {
        let limits = (LIMITS.0 * slots as u64, LIMITS.1 * slots as u64);
        Scarce { units: Units::new(limits, slots), turns: AtomicU64::new(0) }
    }

    fn acquire(&self, actor: &mut Actor, way: Way) -> Checked {
        let n = actor.random.u64(1..=AMOUNT_MAX);
        self.units.acquire(actor, n, way).map(drop)
    }

    fn trade(&self, actor: &mut Actor) -> Checked {
        let turn = self.turns.fetch_add(1, Relaxed);
        let acquires = if (turn / SEASON).is_multiple_of(2) { 2 } else { 13 };
        for _ in 0..1 << actor.random.u8(..8) {
            if actor.random.u8(..16) < acquires {
                let way = if actor.random.u8(..8) == 0 { Way::UpTo } else { Way::Try };
                self.acquire(actor, way)?;
            } else {
                let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..1000));
                self.units.release(actor, whose, most);
            }
        }
        Ok(())
    }
}

impl Structure for Scarce {
    fn name(&self) -> &'static str {
        "budget_scarce"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..3 => actor.exactly(self.units.check_free()),
            3..6 => actor.exactly(self.units.check_held()).map(drop),
            6..8 => self.units.change_limit(actor),
            8..11 => {
                let long = Duration::from_micros(actor.random.u64(..WAIT_MICROS_MAX));
                self.acquire(actor, Way::Wait(long))
            }
            11..13 => {
                let polls = actor.random.u32(..3);
                self.acquire(actor, Way::Poll(polls))
            }
            13..16 => {
                let n = actor.random.u64(2..=AMOUNT_MAX);
                self.units.reserve(actor, n).map(drop)
            }
            16..22 => self.acquire(actor, Way::Lease),
            _ => self.trade(actor),
        }
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        let (whose, most) = (self.units.any_hand(actor), actor.random.u64(1..AMOUNT_MAX));
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
