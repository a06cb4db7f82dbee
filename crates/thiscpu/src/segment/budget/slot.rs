//! Slots of participants, and what the protocol asks of the system.

use super::waiter::Waiter;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};

/// A process that has a slot, and makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Participant {
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// No participant has the slot. Its pairs are zeros in each budget, and it has no waiters.
    Free,
    /// A participant has the slot.
    Live,
    /// The participant has ended; its units are on the way back.
    Dead,
}

/// The word of a slot: generation (62 bits) | state (2 bits).
///
/// The generation counts the participants that had the slot. Zeroed memory is a free slot.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Slot(AtomicU64);

fn word(state: SlotState, generation: u64) -> u64 {
    generation << 2 | state as u64
}

impl Slot {
    /// Returns a slot as zeroed memory is: free, in generation 0.
    #[cfg(any(thiscpu_model, test))]
    pub(crate) const fn new() -> Slot {
        Slot(AtomicU64::new(0))
    }

    pub(crate) fn load(&self) -> (SlotState, u64) {
        // Acquire: pairs with the exchanges below. Who sees a dead slot sees all that its
        // participant stored.
        let word = self.0.load(Acquire);
        let state = match word & 3 {
            0 => SlotState::Free,
            1 => SlotState::Live,
            _ => SlotState::Dead,
        };
        (state, word >> 2)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, AcqRel, Acquire).is_ok()
    }

    /// Takes the slot for a participant, if it is free in this generation.
    pub(crate) fn occupy(&self, generation: u64) -> bool {
        self.exchange(word(SlotState::Free, generation), word(SlotState::Live, generation))
    }

    /// Records that the participant has ended. Nobody but one caller gets true.
    pub(crate) fn declare_dead(&self, generation: u64) -> bool {
        self.exchange(word(SlotState::Live, generation), word(SlotState::Dead, generation))
    }

    /// Returns the generation of a participant that has ended, and has not been freed.
    ///
    /// Records the death first. If that fails, another process came first.
    pub(super) fn generation_of_dead(&self, number: u32, world: &impl World) -> Option<u64> {
        let (state, generation) = self.load();
        let is_dead = match state {
            SlotState::Free => false,
            SlotState::Live => world.is_dead(number, generation),
            SlotState::Dead => true,
        };
        is_dead.then(|| {
            self.declare_dead(generation);
            generation
        })
    }

    /// Frees the slot of a dead participant for the next generation.
    pub(super) fn free(&self, generation: u64) -> bool {
        let next = generation.wrapping_add(1) & (u64::MAX >> 2);
        self.exchange(word(SlotState::Dead, generation), word(SlotState::Free, next))
    }

    pub(super) fn is(&self, state: SlotState, generation: u64) -> bool {
        self.load() == (state, generation)
    }
}

/// What the protocol asks of the system, and of the segment around a budget.
pub(crate) trait World {
    /// Returns whether the participant of a slot has ended.
    ///
    /// If it returns true, no store of the participant follows, and all are visible to the caller.
    /// It must not return true too early; too late is safe.
    fn is_dead(&self, slot: u32, generation: u64) -> bool;

    /// Returns everything that a dead participant held in any budget, and frees its slot.
    ///
    /// Calls [`reclaim`](super::Parts::reclaim) for each budget of the segment, and then
    /// [`free_slot`](super::free_slot).
    fn reclaim(&self, slot: u32, generation: u64);

    /// Reports that the participant of a slot has released more units than it held.
    ///
    /// The protocol calls it once for each budget. `_limit` is the budget's limit. A model reports
    /// nothing.
    fn report_over_release(&self, _slot: u32, _units: u64, _limit: u64) {}

    /// Wakes the thread that waits, or the thread that wakes the tasks of the waiter's process.
    ///
    /// The waiter's state has changed, or its owner should look again.
    fn wake(&self, waiter: &Waiter);
}

/// A world of processes that do not end.
#[cfg(all(test, not(thiscpu_model)))]
pub(super) struct Alone;

#[cfg(all(test, not(thiscpu_model)))]
impl World for Alone {
    fn is_dead(&self, _: u32, _: u64) -> bool {
        false
    }

    fn reclaim(&self, _: u32, _: u64) {}

    fn wake(&self, _: &Waiter) {}
}
