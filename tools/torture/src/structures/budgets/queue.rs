//! Budgets that threads queue for. No thread waits while it holds units, so each is served in the
//! end.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::units::{Call, Units};
use super::{Actor, Structure, delegate};
use crate::violation::{Checked, equal};

/// The limits for each slot, of the budget that all threads queue for.
const LIMITS: [u64; 2] = [48, 96];
/// The limits of the budget that few threads queue for.
const LIMITS_OF_FEW: [u64; 2] = [1_000, 2_000];
const FEW: u64 = 3;
/// A number of units that one thread can have whatever the limit is, and two threads cannot.
const MUCH: u64 = 900;
/// The time after which a waiter was forgotten: other threads hold units for microseconds.
const LONG: Duration = Duration::from_secs(30);

pub(in super::super) struct Queue {
    units: Units,
    much: u64,
    groups: Option<Groups>,
}

/// Admits groups of [`FEW`] threads, one group after the other.
///
/// A waiter that its group forgets is never served by later callers, so the bug shows.
#[derive(Debug, Default)]
struct Groups {
    /// The threads of the group that have entered and left.
    ///
    /// SeqCst: the next group enters after all of this group's calls.
    entered: AtomicU64,
    left: AtomicU64,
}

impl Groups {
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
    /// Creates a budget that all threads queue for.
    pub(in super::super) fn of_all(slots: usize) -> Self {
        let limits = LIMITS.map(|limit| limit * slots as u64);
        let units = Units::new(limits, slots);
        Queue { units, much: limits[0].min(MUCH), groups: None }
    }

    /// Creates a budget that [`FEW`] threads at a time queue for.
    pub(in super::super) fn of_few(slots: usize) -> Self {
        let units = Units::new(LIMITS_OF_FEW, slots);
        Queue { units, much: MUCH, groups: Some(Groups::default()) }
    }

    /// Returns a number of units: mostly small, sometimes one that must wait for other threads.
    fn amount(&self, actor: &mut Actor) -> u64 {
        let most = if actor.random.u8(..4) == 0 { self.much } else { 16 };
        actor.random.u64(1..=most)
    }

    /// Waits for units a few times.
    ///
    /// Each wait may be for all other threads, which are slow on emulated CPUs.
    fn wait_and_release(&self, actor: &mut Actor) -> Checked {
        for _ in 0..1 << actor.random.u8(..4) {
            let n = self.amount(actor);
            let taken = self.units.acquire(actor, n, Call::Wait(LONG))?;
            equal("units granted to a waiter", n as i64, taken as i64)?;
            // Other threads run meanwhile, and find fewer units.
            if actor.random.u8(..16) == 0 {
                std::thread::yield_now();
            }
            self.units.release(actor, actor.slot, u64::MAX);
        }
        Ok(())
    }

    fn acquire_and_release(&self, actor: &mut Actor, call: Call) -> Checked {
        let n = self.amount(actor);
        self.units.acquire(actor, n, call)?;
        self.units.release(actor, actor.slot, u64::MAX);
        Ok(())
    }

    fn use_or_check(&self, actor: &mut Actor) -> Checked {
        let polls = actor.random.u32(..4);
        match actor.random.u8(..64) {
            0 => actor.exactly(self.units.check_available()),
            1 => actor.exactly(self.units.check_held()),
            2 => self.units.change_limit(actor),
            3..8 => self.acquire_and_release(actor, Call::Try),
            8..16 => self.acquire_and_release(actor, Call::Poll(polls)),
            16..20 => {
                let short = Duration::from_micros(u64::from(polls) * 20);
                self.acquire_and_release(actor, Call::Wait(short))
            }
            _ => self.wait_and_release(actor),
        }
    }
}

impl Structure for Queue {
    fn step(&self, actor: &mut Actor) -> Checked {
        let Some(groups) = &self.groups else { return self.use_or_check(actor) };
        if !groups.enter() {
            return Ok(());
        }
        let result = self.use_or_check(actor);
        groups.leave();
        result
    }

    /// Sometimes releases all that a worker holds, so that a handler serves the waiters.
    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.units.release_some(actor, 1..=MUCH)
    }

    delegate!();
}
