//! How a waiter joins the queue, looks, and leaves it.

use super::memory::Parts;
use super::pool::{Kind, Mode, Operation};
use super::recall::Cursor;
use super::slot::{Participant, World};
use super::waiter::{Request, Sleeper, Status, Waiter, WaiterState};
use crate::budget::TryAcquireError;
use crate::sys::atomic::Ordering::AcqRel;

/// A place in the queue. Its owner looks from time to time, or leaves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    number: u32,
    /// The status while it waits.
    status: Status,
}

#[cfg(not(thiscpu_model))]
impl Waiting {
    /// Returns a copy for the thread that watches the place for its owner.
    pub(crate) fn watched(&self) -> Waiting {
        Waiting { number: self.number, status: self.status }
    }
}

/// What a wait has come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The participant holds the units.
    Granted,
    /// The units are not there yet.
    Waiting(Waiting),
    /// The budget is closed.
    Closed,
    /// The caller left the queue without units.
    Left,
    /// No waiter was free, or a damaged segment has lost it: try again later.
    Full,
}

impl Parts<'_> {
    /// Acquires `n` units, or joins the queue for them.
    ///
    /// The commit is the exchange of the pool that grants, or that says that somebody waits.
    pub(crate) fn enqueue(
        &self,
        me: Participant,
        lane: u32,
        n: u64,
        sleeper: Sleeper,
        world: &impl World,
    ) -> Wait {
        match self.try_acquire(me, lane, n, world) {
            Ok(()) => return Wait::Granted,
            Err(TryAcquireError::Closed) => return Wait::Closed,
            Err(TryAcquireError::Exhausted { .. }) => {}
        }
        let Some(waiting) = self.take_waiter(me, lane, n, sleeper) else { return Wait::Full };
        let mut cursor = Cursor::default();
        loop {
            let now = self.settle(world);
            let grant = match now.mode() {
                Mode::Queued | Mode::Closed => None,
                _ => self.grant(now, waiting.number, n),
            };
            if self.status(&waiting) != waiting.status || now.mode() == Mode::Closed {
                return self.leave(waiting, world);
            }
            let next = match (now.mode(), grant) {
                (_, Some(next)) => next,
                (Mode::PerCpu | Mode::Recall, None) => {
                    self.recall(now, &mut cursor, world);
                    continue;
                }
                // Also if the pool says already that somebody waits: a process that found nobody
                // in the queue must not say so any more.
                (_, None) => now.with_mode(Mode::Queued),
            };
            if self.commit(now, next, world) {
                return self.look(waiting, world);
            }
        }
    }

    /// Looks at everything that a waiter may wait for: dead participants, free units, the end.
    ///
    /// A waiter calls this when it is woken, and from time to time. A participant that was killed
    /// in the middle of a call keeps it waiting no longer than that.
    pub(crate) fn poll(&self, waiting: Waiting, me: Participant, world: &impl World) -> Wait {
        self.reclaim_dead(self.settle(world), me, world);
        self.look(waiting, world)
    }

    /// Leaves the queue, unless the units were granted before.
    pub(crate) fn cancel(&self, waiting: Waiting, world: &impl World) -> Wait {
        self.leave(waiting, world)
    }

    /// Returns the entry of the table, for its futex word.
    pub(crate) fn waiter(&self, waiting: &Waiting) -> Option<&Waiter> {
        self.waiters.get(waiting.number as usize)
    }

    /// Grants free units, and looks whether the wait is over. Does not look for the dead.
    pub(crate) fn look(&self, waiting: Waiting, world: &impl World) -> Wait {
        self.serve(world);
        let mode = self.settle(world).mode();
        match self.status(&waiting) == waiting.status && mode != Mode::Closed {
            true => Wait::Waiting(waiting),
            false => self.leave(waiting, world),
        }
    }

    /// Reclaims from dead participants and grants free units, as [`poll`](Self::poll) does.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn tend(&self, me: Participant, world: &impl World) {
        self.reclaim_dead(self.settle(world), me, world);
        self.serve(world);
    }

    /// Returns whether the owner of a place would find that its wait is over.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn is_over(&self, waiting: &Waiting) -> bool {
        self.status(waiting) != waiting.status || self.is_closed()
    }

    fn status(&self, waiting: &Waiting) -> Status {
        self.waiters[waiting.number as usize].status()
    }

    /// Takes a free waiter, and gives it the next ticket.
    fn take_waiter(&self, me: Participant, lane: u32, n: u64, sleeper: Sleeper) -> Option<Waiting> {
        let mut free = self.waiters.iter().zip(0..);
        let (waiter, number, taken) =
            free.find_map(|(waiter, number)| Some((waiter, number, waiter.take(me.slot)?)))?;
        // AcqRel: a waiter that comes after this one, in any process, has a higher ticket.
        let ticket = self.record.tickets.fetch_add(1, AcqRel);
        let task_of = (sleeper == Sleeper::Task).then_some(me.slot);
        waiter.write(&Request { budget: self.id, ticket, lane, units: n }, task_of);
        let status = taken.with(WaiterState::Waiting);
        waiter.change(taken, status).then_some(Waiting { number, status })
    }

    /// Cancels a waiter that still waits, and frees it.
    fn leave(&self, waiting: Waiting, world: &impl World) -> Wait {
        let Waiting { number, status } = waiting;
        let granted = status.with(WaiterState::Granted);
        let (result, last) = loop {
            let now = self.settle(world);
            let found = self.status(&waiting);
            if found == granted {
                break (Wait::Granted, found);
            }
            if found != status {
                let is_canceled = found == status.with(WaiterState::Canceled);
                let result = if now.mode() == Mode::Closed { Wait::Closed } else { Wait::Left };
                break (if is_canceled { result } else { Wait::Full }, found);
            }
            // The commit. Each grant is an exchange of the pool too, so one of them comes first.
            let operation = Operation::on_waiter(Kind::Cancel, 0, number);
            if self.commit(now, now.next(now.units(), now.mode(), operation), world) {
                // Usually done. But if somebody has damaged the waiter, nobody else finds it.
                let waiter = &self.waiters[number as usize];
                waiter.change(status, status.with(WaiterState::Canceled));
            }
        };
        if last.with(WaiterState::Waiting) == status {
            self.free_waiter(number, last, world);
        }
        self.serve(world);
        result
    }

    /// Frees a waiter that was granted or canceled, when the pool does not name it any more.
    fn free_waiter(&self, number: u32, status: Status, world: &impl World) {
        loop {
            let now = self.settle(world);
            let is_named =
                matches!(now.kind(), Kind::Grant | Kind::Cancel) && now.waiter() == number;
            if !is_named || self.commit(now, now.with_mode(now.mode()), world) {
                break;
            }
        }
        let waiter = &self.waiters[number as usize];
        waiter.change(status, status.with(WaiterState::Free));
    }
}
