//! Tasks that wait for units, and the thread that wakes them.
//!
//! A task does not sleep on a word, and no other process can call its waker. So a process with
//! tasks that wait has one thread for each attached segment. The thread sleeps on a word of the
//! process's slot. Each thread that ends a wait of one of these tasks changes that word. The thread
//! also looks from time to time, as a waiting thread does, but for all tasks at once.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Member;
use super::membership::Membership;
use crate::segment::budget::{Participant, Waiting};
use crate::segment::file::budgets::BudgetAt;
use crate::segment::file::mapping::Mapping;
use crate::segment::file::slots::records;
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use crate::sys::futex::{self, Scope};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;
use crate::sys::quiet_thread;

/// The longest time between two looks of a waiter.
pub(in crate::segment) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A task that waits.
struct Task {
    budget: BudgetAt,
    /// Its place in the queue; `None` if no waiter was free.
    place: Option<Waiting>,
    /// `None` once it was woken.
    waker: Option<Waker>,
}

/// The tasks of this process that wait for budgets of one attached segment.
#[derive(Default)]
pub(in crate::segment) struct Tasks {
    /// The number of the next task. Children continue to count from it.
    next: AtomicU64,
    lock: Lock,
    table: UnsafeCell<Table>,
}

#[derive(Default)]
struct Table {
    tasks: BTreeMap<u64, Task>,
    has_thread: bool,
}

// SAFETY: only the holder of the lock accesses the table, whose contents can be sent.
unsafe impl Sync for Tasks {}

impl Tasks {
    /// Calls `body` with the table. `body` calls no code of the program.
    fn with_table<T>(&self, body: impl FnOnce(&mut Table) -> T) -> T {
        let guard = self.lock.lock();
        // SAFETY: the lock is held, and `body` cannot take it again.
        let table = unsafe { &mut *self.table.get() };
        if guard.first_in_generation {
            // The parent's tasks and its thread do not exist in a child. A change of the table may
            // have been incomplete at the fork, so nothing in it is dropped.
            mem::forget(mem::take(table));
        }
        body(table)
    }

    /// Returns a number for a task.
    pub(in crate::segment) fn number(&self) -> u64 {
        // Relaxed: only the number itself matters.
        self.next.fetch_add(1, Relaxed)
    }

    /// Removes a task, which waits no longer.
    pub(in crate::segment) fn remove(&self, number: u64) {
        // Dropping a waker may run code of the program, so that happens without the lock.
        drop(self.with_table(|table| table.tasks.remove(&number)));
    }

    /// Looks at all tasks, and returns the wakers of those whose wait is over.
    ///
    /// Returns `None` if no task waits at the end of a span; then the thread ends. Each task has a
    /// handle of the segment, and keeps it until the task is removed under the lock. So the
    /// reference that this call takes is not the last, unless the program has forgotten a future.
    fn look(&self, member: &Weak<Member>, is_end_of_span: bool) -> Option<Vec<Waker>> {
        let (wakers, last) = self.with_table(|table| {
            let member = if table.tasks.is_empty() { None } else { member.upgrade() };
            let Some(member) = member else {
                table.has_thread = !is_end_of_span;
                return (table.has_thread.then(Vec::new), None);
            };
            let wakers = table.look(&member, is_end_of_span);
            (Some(wakers), Arc::into_inner(member))
        });
        // If this was the last reference, the process gives up its slot here, which takes the lock.
        drop(last);
        wakers
    }
}

impl Table {
    fn look(&mut self, member: &Member, is_end_of_span: bool) -> Vec<Waker> {
        if is_end_of_span {
            self.tend(member);
        }
        let is_lost = member.mapping.is_lost();
        let is_over = |task: &Task| match &task.place {
            _ if is_lost => true,
            Some(place) => task.budget.parts(&member.mapping).is_over(place),
            // The next poll of the task looks for a free waiter again.
            None => is_end_of_span,
        };
        let over = self.tasks.values_mut().filter(|task| is_over(task));
        over.filter_map(|task| task.waker.take()).collect()
    }

    /// Reclaims from the dead and grants, as a thread that waits for units does.
    fn tend(&self, member: &Member) {
        member.keep_lock_at_times();
        // A process that has lost its slot may look at all of them.
        let nobody = Participant { slot: u32::MAX, generation: 0 };
        let me = member.membership().participant().unwrap_or(nobody);
        let mut tended: Vec<&BudgetAt> = Vec::new();
        for Task { budget, .. } in self.tasks.values() {
            if !tended.iter().any(|it| it.is(budget)) {
                budget.parts(&member.mapping).tend(me, member);
                tended.push(budget);
            }
        }
    }
}

impl Member {
    /// Registers `waker`, to be called when the task should look whether its wait is over.
    ///
    /// The caller looks again afterwards, because the wait may have ended before this call. Starts
    /// the thread that wakes tasks, if there is none. If the system makes no thread, this calls
    /// `waker` at once.
    pub(in crate::segment) fn watch(
        self: &Arc<Self>,
        number: u64,
        budget: &BudgetAt,
        place: Option<Waiting>,
        waker: &Waker,
    ) {
        let task = Task { budget: *budget, place, waker: Some(waker.clone()) };
        let is_vfork_child = Host::is_vfork_child();
        let (old, needs_thread) = self.tasks.with_table(|table| {
            let old = table.tasks.insert(number, task);
            // A thread that such a child starts would end with it.
            let needs_thread = !table.has_thread && !is_vfork_child;
            table.has_thread |= needs_thread;
            (old, needs_thread)
        });
        drop(old);
        if needs_thread && !self.start_thread() {
            self.tasks.with_table(|table| table.has_thread = false);
            waker.wake_by_ref();
        }
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        let (member, tasks) = (Arc::downgrade(self), Arc::clone(&self.tasks));
        let (mapping, membership) = (Arc::clone(&self.mapping), self.membership());
        quiet_thread::start("thiscpu-tasks", move || {
            wake_tasks(&member, &tasks, &mapping, membership);
        })
    }

    /// Wakes the thread, if there is one, so that it ends. No task waits any more.
    pub(super) fn end_tasks(&self, membership: &Membership) {
        let record = membership.participant().and_then(|own| self.record(own.slot));
        if let Some(record) = record
            && self.tasks.with_table(|table| table.has_thread)
        {
            record.wake_tasks();
        }
    }
}

/// Wakes tasks whose wait is over, until no task waits.
fn wake_tasks(member: &Weak<Member>, tasks: &Tasks, mapping: &Mapping, membership: &Membership) {
    let nobody = AtomicU32::new(0);
    let mut end_of_span = Instant::now() + LOOK_EVERY;
    loop {
        let slot = membership.participant().map(|own| own.slot as usize);
        let record = slot.and_then(|slot| records(mapping).get(slot));
        // Without a slot, no other thread or process changes a word.
        let word = record.map_or(&nobody, |record| record.task_wakes());
        // Acquire: pairs with the addition of a wake; the look comes after it.
        let seen = word.load(Acquire);
        let is_end_of_span = Instant::now() >= end_of_span;
        if is_end_of_span {
            end_of_span = Instant::now() + LOOK_EVERY;
        }
        let has_ended = member.strong_count() == 0;
        let Some(over) = tasks.look(member, is_end_of_span || has_ended) else { return };
        for waker in over {
            // A waker that panics must not keep others from being called. The result is forgotten,
            // because the payload of a panic may panic when it is dropped.
            mem::forget(catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
        let left = end_of_span.saturating_duration_since(Instant::now());
        futex::wait(word, seen, Some(left), Scope::Shared);
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}
