//! Grants to waiters, in the order of their tickets.

use super::memory::Parts;
use super::pool::{Kind, Mode, Operation, State};
use super::slot::{SlotState, World};
use super::waiter::Request;

/// The first waiter of a budget.
pub(super) struct First {
    ticket: u64,
    number: u32,
    pub(super) slot: u32,
    units: u64,
}

impl Parts<'_> {
    /// Grants units to the first waiters, as long as the pool has enough of them.
    ///
    /// Each call that brings units to the pool makes this one afterwards. If its process is killed
    /// before, each waiter does so at its next look.
    pub(super) fn serve(&self, world: &impl World) {
        loop {
            let now = self.settle(world);
            if now.mode() != Mode::Queued {
                return;
            }
            let next = match self.first_waiter() {
                None => now.with_mode(Mode::Shared),
                Some(First { number, units, .. }) => match self.grant(now, number, units) {
                    Some(next) => next,
                    None => return,
                },
            };
            self.commit(now, next, world);
        }
    }

    /// Returns the state after a grant, if the pool has the units.
    pub(super) fn grant(&self, now: State, waiter: u32, n: u64) -> Option<State> {
        let operation = Operation::on_waiter(Kind::Grant, n, waiter);
        now.has(n).then(|| now.next(now.units() - n as i64, now.mode(), operation))
    }

    /// Returns the waiter of this budget that has the lowest ticket.
    ///
    /// A settled state of the pool was loaded before. If a waiter is canceled, or its participant
    /// is declared dead, after this look, the pool changes, and no grant from that state succeeds.
    pub(super) fn first_waiter(&self) -> Option<First> {
        let waiting = self.waiters.iter().zip(0..).filter_map(|(waiter, number)| {
            let (status, Request { budget, ticket, units, .. }) = waiter.waiting()?;
            let slot = status.slot();
            let is_live = self.slots.get(slot)?.load().0 == SlotState::Live;
            (budget == self.id && is_live).then_some(First { ticket, number, slot, units })
        });
        waiting.min_by_key(|first| first.ticket)
    }
}
