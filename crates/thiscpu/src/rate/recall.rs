//! Changes of mode and of terms: the recall, which enters shared mode, and the return from it.
//!
//! A recall closes the gate, fences, and adds up what lanes were lent and have not taken. One
//! exchange returns that to the pool and marks it as shared. The argument is that of a budget's
//! recall. A loan is never on its way to a lane, because it is made under the lock.

use super::core::Rate;
use super::percpu_mode::LOAN_MIN;
use super::terms::Terms;
use crate::budget::credit::{self, Credit};
use crate::gate::ITEM_ALIGN;
use crate::lanes::{region, table};
use crate::sys::Host;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::lock::Guard;
use crate::sys::machine::Machine as _;
use crate::sys::startup;
use crate::sys::{errno, fence};
use crate::tier::Tier;

/// How often a switch to per-CPU mode is tried while other threads change the pool.
const PERCPU_ATTEMPTS: u32 = 8;

impl Rate {
    /// Enters shared mode.
    #[cold]
    pub(super) fn recall(&self) {
        self.in_shared_mode(false, |_| ());
    }

    /// Enters shared mode, then calls `act` under the lock.
    ///
    /// After that returns to per-CPU mode if the rate was in it and `should_return` is set.
    pub(super) fn in_shared_mode<R>(
        &self,
        should_return: bool,
        act: impl FnOnce(&Guard<'_>) -> R,
    ) -> R {
        let _errno = errno::save();
        let guard = self.lock();
        let was_percpu = self.is_percpu();
        self.to_shared_mode(&guard);
        let result = act(&guard);
        if was_percpu && should_return {
            self.to_percpu_mode(&guard);
        }
        result
    }

    /// Enters shared mode, or stays in it; the caller holds the lock.
    pub(super) fn to_shared_mode(&self, _guard: &Guard<'_>) {
        if !self.is_percpu() {
            return;
        }
        let began = Host::time();
        let gate = self.gate.load();
        self.gate.set(gate.closed());
        // Relaxed: a statistic, which changes under the lock only.
        self.recalls.store(self.recalls.load(Relaxed).wrapping_add(1), Relaxed);
        let credit: i64 = gate.item().map_or(0, |item| {
            fence::fence();
            // Read after the fence: a lane is counted before any section can use it. So this number
            // covers each section that has committed.
            let lanes = (1..=table::in_use()).map(|lane| Credit::of(item, lane));
            lanes.map(|lane| lane.window().lent() - lane.taken()).sum()
        });
        loop {
            let look = self.look();
            let returned = look.terms.quanta(credit as u64);
            if self.shared.pool.exchange(look.state, look.taken(-returned).shared(false)) {
                break;
            }
        }
        self.shared.calls.reset();
        self.shared.calls.note_recall(began, Host::time());
    }

    /// Enters per-CPU mode if there are plenty of units.
    ///
    /// Does nothing if another thread holds the lock, or if lanes cannot be allocated.
    #[cold]
    pub(super) fn try_percpu_mode(&self) {
        let _errno = errno::save();
        if let Some(guard) = self.try_lock() {
            self.to_percpu_mode(&guard);
        }
    }

    /// Enters per-CPU mode if units are plentiful and nobody waits; the caller holds the lock.
    pub(super) fn to_percpu_mode(&self, _guard: &Guard<'_>) {
        // So that not each call tries, if it does not work.
        self.shared.calls.reset();
        let gate = self.gate.load();
        let lanes = table::in_use().max(1);
        let share = self.look().terms.share;
        let loan_max = share / lanes as u64;
        // Without sections a lane is not faster than the pool.
        let has_sections = startup::chosen() != Some(Tier::Atomic);
        if !gate.is_closed() || !has_sections || loan_max < LOAN_MIN {
            return;
        }
        let Some(item) = gate.item().or_else(alloc_lanes) else { return };
        (1..=table::in_use()).for_each(|lane| Credit::of(item, lane).clear());
        // Relaxed, both: they are read under the lock only.
        self.loan_max.store(loan_max, Relaxed);
        self.lanes.store(lanes, Relaxed);
        for _ in 0..PERCPU_ATTEMPTS {
            let look = self.look();
            let terms = &look.terms;
            if !look.state.is_open() || 4 * look.level < 3 * terms.quanta(terms.burst) {
                break;
            }
            // From this instant on every look gives the bucket the smaller cap of per-CPU mode.
            if self.shared.pool.exchange(look.state, look.state.percpu()) {
                self.shared.calls.note_percpu_mode(look.time);
                self.gate.set(gate.opened(item));
                return;
            }
        }
        // The gate stays closed, but keeps the item for the next attempt.
        self.gate.set(gate.opened(item).closed());
    }

    /// Changes the terms at one instant; the caller holds the lock, in shared mode.
    ///
    /// The bucket keeps its units, as far as the new burst allows.
    pub(super) fn set_terms(&self, terms: &Terms) {
        loop {
            let look = self.look();
            let level = terms.convert(look.level, &look.terms);
            let origin = terms.origin(look.time, level);
            if self.shared.pool.exchange_terms(&self.slots, look.state, terms, origin) {
                return;
            }
        }
    }
}

/// Allocates memory in the lanes, unless another thread is changing the regions right now.
fn alloc_lanes() -> Option<usize> {
    region::try_lock()?.allocate_if_possible(credit::BYTES, ITEM_ALIGN)
}

impl Drop for Rate {
    fn drop(&mut self) {
        if let Some(item) = self.gate.load().item() {
            region::free(item, credit::BYTES);
        }
    }
}
