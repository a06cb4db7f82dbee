//! The table of waiters, which all budgets of a segment share.
//!
//! ```text
//! state    uses (45 bits) | slot (16 bits) | state (3 bits)
//! ```
//!
//! An exchange of the state takes a waiter, so its owner is known at once. Uses counts the times
//! that it was taken. So an exchange for an earlier use fails.

use crate::sys::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

const STATE_BITS: u32 = 3;
const SLOT_BITS: u32 = 16;
const USES_AT: u32 = STATE_BITS + SLOT_BITS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterState {
    Free,
    /// Its owner writes what it waits for.
    Taken,
    Waiting,
    /// The units are held by its owner.
    Granted,
    Canceled,
}

/// The state of a waiter, with the use that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(u64);

impl Status {
    pub(super) fn state(self) -> WaiterState {
        match self.0 & ((1 << STATE_BITS) - 1) {
            0 => WaiterState::Free,
            1 => WaiterState::Taken,
            2 => WaiterState::Waiting,
            3 => WaiterState::Granted,
            _ => WaiterState::Canceled,
        }
    }

    pub(super) fn slot(self) -> u32 {
        (self.0 >> STATE_BITS) as u32 & ((1 << SLOT_BITS) - 1)
    }

    pub(super) fn with(self, state: WaiterState) -> Status {
        Status(self.0 >> STATE_BITS << STATE_BITS | state as u64)
    }

    /// Returns the status of the next use, by a participant that has `slot`.
    fn taken_by(self, slot: u32) -> Status {
        let uses = (self.0 >> USES_AT).wrapping_add(1);
        Status(uses << USES_AT | u64::from(slot) << STATE_BITS | WaiterState::Taken as u64)
    }
}

/// The owner of a waiter: a thread, which sleeps on the waiter's word, or a task.
///
/// A task does not sleep. A thread of its process sleeps on a word of the slot, and wakes the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    Thread,
    Task,
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The number of the budget in the segment.
    pub(super) budget: u64,
    pub(super) ticket: u64,
    pub(super) lane: u32,
    pub(super) units: u64,
}

/// One waiter: a thread or task that waits for units. 64 bytes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Waiter {
    status: AtomicU64,
    budget: AtomicU64,
    ticket: AtomicU64,
    units: AtomicU64,
    lane: AtomicU32,
    /// Counts wakes; the word that its thread sleeps on.
    wakes: AtomicU32,
    /// One more than the slot of the process whose task waits; 0 if a thread waits.
    task_of: AtomicU32,
}

impl Waiter {
    /// Returns a waiter as zeroed memory is: free.
    #[cfg(thiscpu_model)]
    pub(crate) const fn new() -> Waiter {
        Waiter {
            status: AtomicU64::new(0),
            budget: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            units: AtomicU64::new(0),
            lane: AtomicU32::new(0),
            wakes: AtomicU32::new(0),
            task_of: AtomicU32::new(0),
        }
    }

    /// Returns the word of a futex.
    ///
    /// A waiter loads it, looks, and sleeps only if it is unchanged.
    pub(crate) fn wakes(&self) -> &AtomicU32 {
        &self.wakes
    }

    /// Returns the slot of the process whose task waits; `None` if a thread waits.
    ///
    /// The waiter may have its next owner by now. Then the former owner has seen that its wait is
    /// over, and needs no wake.
    pub(crate) fn task_of(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `write`.
        self.task_of.load(Acquire).checked_sub(1)
    }

    /// Counts a wake, before the system call that wakes.
    pub(super) fn count_wake(&self) {
        // Release: pairs with the load of a waiter that is about to look.
        self.wakes.fetch_add(1, Release);
    }

    pub(super) fn status(&self) -> Status {
        // Acquire: pairs with `change`.
        Status(self.status.load(Acquire))
    }

    pub(super) fn change(&self, from: Status, to: Status) -> bool {
        // AcqRel: releases what its owner wrote to those that find it waiting, and the grant to
        // its owner.
        self.status.compare_exchange(from.0, to.0, AcqRel, Acquire).is_ok()
    }

    /// Takes the waiter, if it is free.
    pub(super) fn take(&self, slot: u32) -> Option<Status> {
        let now = self.status();
        let taken = now.taken_by(slot);
        (now.state() == WaiterState::Free && self.change(now, taken)).then_some(taken)
    }

    /// Writes what a taken waiter waits for.
    pub(super) fn write(&self, request: &Request, task_of: Option<u32>) {
        // Release, all: pair with the Acquire loads in `waiting`. A reader of one of these looks at
        // the status again, and sees that the waiter was taken.
        self.task_of.store(task_of.map_or(0, |slot| slot + 1), Release);
        self.budget.store(request.budget, Release);
        self.ticket.store(request.ticket, Release);
        self.units.store(request.units, Release);
        self.lane.store(request.lane, Release);
    }

    /// Returns the status and the request, if the waiter waits, and did not change meanwhile.
    pub(super) fn waiting(&self) -> Option<(Status, Request)> {
        let status = self.status();
        if status.state() != WaiterState::Waiting {
            return None;
        }
        // Acquire: the status is looked at again after these.
        let request = Request {
            budget: self.budget.load(Acquire),
            ticket: self.ticket.load(Acquire),
            units: self.units.load(Acquire),
            lane: self.lane.load(Acquire),
        };
        (self.status() == status).then_some((status, request))
    }
}
