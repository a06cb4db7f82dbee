//! Shared budgets in a static, for the model, which has no files and no processes.

use super::limit::Instant;
use super::memory::{Pairs, Parts, Record, Slots};
use super::pair::{Pair, Released};
use super::reclaim::{free_slot_of_dead, reclaim_all};
use super::slot::{Participant, Slot, SlotState, World};
use super::wait::{Wait, Waiting};
use super::waiter::{Sleeper, Waiter};
use crate::budget::TryAcquireError;
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use crate::sys::machine::Machine as _;
use crate::tier::Tier;

/// The lanes of each budget.
const LANES: usize = 2;
const WAITERS: usize = 3;

/// `N` budgets of one segment that has `SLOTS` slots, each with `LIMIT` units.
#[derive(Debug)]
pub struct SharedBudgets<const LIMIT: u64, const N: usize, const SLOTS: usize> {
    records: [Record; N],
    pairs: [[[Pair; SLOTS]; N]; LANES],
    slots: [Slot; SLOTS],
    waiters: [Waiter; WAITERS],
    /// For each slot the generations whose participants have ended: the locks of the kernel.
    ended: [AtomicU64; SLOTS],
}

/// A process that has a slot.
#[derive(Clone, Copy, Debug)]
pub struct Process(Participant);

/// A place in the queue.
#[derive(Debug)]
pub struct Place(Waiting);

/// What a wait has come to; see [`SharedBudgets::enqueue`].
#[derive(Debug)]
pub enum WaitResult {
    /// The process holds the units.
    Granted,
    /// The process must look again.
    Waiting(Place),
    /// The budget is closed.
    Closed,
    /// The process left the queue.
    Left,
    /// The queue has no room.
    Full,
}

impl From<Wait> for WaitResult {
    fn from(wait: Wait) -> WaitResult {
        match wait {
            Wait::Granted => WaitResult::Granted,
            Wait::Waiting(waiting) => WaitResult::Waiting(Place(waiting)),
            Wait::Closed => WaitResult::Closed,
            Wait::Left => WaitResult::Left,
            Wait::Full => WaitResult::Full,
        }
    }
}

impl<const LIMIT: u64, const N: usize, const SLOTS: usize> SharedBudgets<LIMIT, N, SLOTS> {
    /// Creates budgets whose units are all free.
    pub const fn new() -> Self {
        SharedBudgets {
            records: [const { Record::new(LIMIT) }; N],
            pairs: [const { [const { [const { Pair::new() }; SLOTS] }; N] }; LANES],
            slots: [const { Slot::new() }; SLOTS],
            waiters: [const { Waiter::new() }; WAITERS],
            ended: [const { AtomicU64::new(0) }; SLOTS],
        }
    }

    fn parts(&self, budget: usize) -> Parts<'_> {
        let stride = size_of::<[[Pair; SLOTS]; N]>();
        let first = (&raw const self.pairs[0][budget]).cast();
        // SAFETY: the pairs of all slots lie side by side in each lane, as long as `self` lives.
        let pairs = unsafe { Pairs::new(first, stride, LANES as u32, SLOTS as u32) };
        // SAFETY: the slots lie side by side, as long as `self` lives.
        let slots = unsafe { Slots::new(self.slots.as_ptr(), size_of::<Slot>(), SLOTS as u32) };
        let record = &self.records[budget];
        Parts { record, pairs, slots, waiters: &self.waiters, id: budget as u64 }
    }

    fn lane() -> u32 {
        Host::index(Tier::Atomic).unwrap_or(0) as u32 % LANES as u32
    }

    /// Gives a slot to a process.
    ///
    /// # Panics
    ///
    /// If the slot is in use.
    pub fn attach(&self, slot: u32) -> Process {
        self.try_attach(slot).expect("the slot is free")
    }

    /// Gives a slot to a process, if the slot is free or its process has ended.
    pub fn try_attach(&self, slot: u32) -> Option<Process> {
        free_slot_of_dead(&self.parts(0).slots, slot, self);
        let word = &self.slots[slot as usize];
        match word.load() {
            (SlotState::Free, generation) => {
                word.occupy(generation).then_some(Process(Participant { slot, generation }))
            }
            _ => None,
        }
    }

    /// Records that a process has ended, as the kernel does when it releases a lock.
    pub fn end(&self, process: Process) {
        // Release: no store of the process follows, and who sees it dead sees all of them.
        self.ended[process.0.slot as usize].store(process.0.generation + 1, Release);
    }

    /// Acquires units on this thread's CPU.
    pub fn try_acquire(&self, budget: usize, me: Process, n: u64) -> Result<(), TryAcquireError> {
        self.parts(budget).try_acquire(me.0, Self::lane(), n, self)
    }

    /// Releases units on this thread's CPU.
    pub fn release(&self, budget: usize, me: Process, n: u64) {
        self.parts(budget).release(me.0, Self::lane(), n, self);
    }

    /// Releases units on this thread's CPU, without a look whether the pair is closed.
    pub fn release_at_once(&self, budget: usize, me: Process, n: u64) {
        let (parts, lane) = (self.parts(budget), Self::lane());
        match parts.pairs.release(me.0, lane, n, false) {
            Released::Done => {}
            released => parts.release_slow(me.0, lane, n, released, self),
        }
    }

    /// Returns the limit and the free units at one instant.
    pub fn instant(&self, budget: usize, me: Process) -> (u64, i64) {
        let Instant { limit, free, .. } = self.parts(budget).instant(me.0, self);
        (limit, free)
    }

    /// Returns how many units were released but not held.
    pub fn over_released(&self, budget: usize) -> u64 {
        self.parts(budget).over_released()
    }

    /// Returns the limit.
    pub fn limit(&self, budget: usize) -> u64 {
        self.parts(budget).limit(self)
    }

    /// Changes the limit.
    pub fn set_limit(&self, budget: usize, limit: u64) {
        self.parts(budget).set_limit(limit, self);
    }

    /// Closes a budget.
    pub fn close(&self, budget: usize) {
        self.parts(budget).close(self);
    }

    /// Acquires units, or joins the queue for them.
    pub fn enqueue(&self, budget: usize, me: Process, n: u64) -> WaitResult {
        self.parts(budget).enqueue(me.0, Self::lane(), n, Sleeper::Thread, self).into()
    }

    /// Looks whether a wait is over.
    pub fn poll(&self, budget: usize, me: Process, place: Place) -> WaitResult {
        self.parts(budget).poll(place.0, me.0, self).into()
    }

    /// Leaves the queue.
    pub fn cancel(&self, budget: usize, place: Place) -> WaitResult {
        self.parts(budget).cancel(place.0, self).into()
    }

    /// Waits until a wait is over, and looks only when it is woken.
    pub fn wait(&self, budget: usize, me: Process, mut place: Place) -> WaitResult {
        let parts = self.parts(budget);
        loop {
            let Some(waiter) = parts.waiter(&place.0) else { return WaitResult::Full };
            // Acquire: pairs with the wake's addition; the look comes after it.
            let seen = waiter.wakes().load(Acquire);
            match self.poll(budget, me, place) {
                WaitResult::Waiting(again) => place = again,
                over => return over,
            }
            Host::wait(waiter.wakes(), seen, None);
        }
    }

    /// Returns the units that a slot holds, without its credit. Not exact while it is used.
    pub fn held(&self, budget: usize, slot: u32) -> i64 {
        self.parts(budget).pairs.of(slot).map(|pair| pair.first().held()).sum()
    }
}

impl<const LIMIT: u64, const N: usize, const SLOTS: usize> World
    for SharedBudgets<LIMIT, N, SLOTS>
{
    fn is_dead(&self, slot: u32, generation: u64) -> bool {
        // Acquire: pairs with the store in `end`.
        self.ended[slot as usize].load(Acquire) > generation
    }

    fn reclaim(&self, slot: u32, generation: u64) {
        reclaim_all((0..N).map(|budget| self.parts(budget)), slot, generation, self);
    }

    fn wake(&self, waiter: &Waiter) {
        Host::wake(waiter.wakes(), 1);
    }
}
