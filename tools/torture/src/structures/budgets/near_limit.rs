//! A budget near its limit, which also moves below the held units.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::units::{Call, Units};
use super::{Actor, Structure, delegate};
use crate::violation::Checked;

/// The limits, for each slot. On many CPUs they are just enough for per-CPU mode.
const LIMITS: [u64; 2] = [16, 512];
const AMOUNT_MAX: u64 = 64;
const WAIT_MICROS_MAX: u64 = 300;
/// The number of steps in which workers mostly acquire, and then mostly release.
///
/// So the budget enters shared mode, and per-CPU mode again.
const PHASE_STEPS: u64 = 64;

pub(in super::super) struct NearLimit {
    units: Units,
    /// Relaxed: it only selects the phase.
    steps: AtomicU64,
}

impl NearLimit {
    pub(in super::super) fn new(slots: usize) -> Self {
        let limits = LIMITS.map(|limit| limit * slots as u64);
        NearLimit { units: Units::new(limits, slots), steps: AtomicU64::new(0) }
    }

    fn acquire(&self, call: Call, actor: &mut Actor) -> Checked {
        let n = actor.random.u64(1..=AMOUNT_MAX);
        self.units.acquire(actor, n, call).map(drop)
    }

    fn trade(&self, actor: &mut Actor) -> Checked {
        let step = self.steps.fetch_add(1, Relaxed);
        let acquires = if (step / PHASE_STEPS).is_multiple_of(2) { 2 } else { 13 };
        for _ in 0..1 << actor.random.u8(..8) {
            if actor.random.u8(..16) < acquires {
                let call = if actor.random.u8(..8) == 0 { Call::UpTo } else { Call::Try };
                self.acquire(call, actor)?;
            } else {
                self.units.release_some(actor, 1..=999)?;
            }
        }
        Ok(())
    }
}

impl Structure for NearLimit {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..3 => actor.exactly(self.units.check_available()),
            3..6 => actor.exactly(self.units.check_held()),
            6..8 => self.units.change_limit(actor),
            8..11 => {
                let long = Duration::from_micros(actor.random.u64(..WAIT_MICROS_MAX));
                self.acquire(Call::Wait(long), actor)
            }
            11..13 => self.acquire(Call::Poll(actor.random.u32(..3)), actor),
            13..16 => {
                let n = actor.random.u64(2..=AMOUNT_MAX);
                self.units.reserve(actor, n).map(drop)
            }
            16..22 => self.acquire(Call::Lease, actor),
            _ => self.trade(actor),
        }
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.units.release_some(actor, 1..=AMOUNT_MAX)
    }

    delegate!();
}
