//! Tasks that wait for units, and the thread that wakes them.
//!
//! A task does not sleep on a word, and no other process can call its waker. So a process with
//! tasks that wait has one thread for each attached segment. It sleeps on a word of the process's
//! slot, which everybody changes who ends a wait of one of its tasks. It also looks from time to
//! time, as waiters do that are threads, and for all of them at once.

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

/// A waiter looks at least as often.
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
    /// The number of the next task, which children go on to count.
    next: AtomicU64,
    lock: Lock,
    table: UnsafeCell<Table>,
}

#[derive(Default)]
struct Table {
    tasks: BTreeMap<u64, Task>,
    has_thread: bool,
}

// SAFETY: the table is accessed by the holder of the lock only, and what it owns can be sent.
unsafe impl Sync for Tasks {}

impl Tasks {
    /// Calls `body` with the table. `body` calls no code of the program.
    fn with_table<T>(&self, body: impl FnOnce(&mut Table) -> T) -> T {
        let guard = self.lock.lock();
        // SAFETY: the lock is held, and `body` cannot take it again.
        let table = unsafe { &mut *self.table.get() };
        if guard.first_in_generation {
            // The parent's tasks and its thread do not exist in a child. A change of the table may
            // have been incomplete, so nothing in it is dropped.
            mem::forget(mem::take(table));
        }
        body(table)
    }

    /// Returns a number for a task.
    pub(in crate::segment) fn number(&self) -> u64 {
        // Relaxed: only the number itself matters.
        self.next.fetch_add(1, Relaxed)
    }

    /// Forgets a task, which waits no longer.
    pub(in crate::segment) fn remove(&self, number: u64) {
        // Dropping a waker may run code of the program, so that happens without the lock.
        drop(self.with_table(|table| table.tasks.remove(&number)));
    }

    /// Looks after all tasks, and returns the wakers of those whose wait is over.
    ///
    /// Returns `None` if there are none at the end of a span; then the thread ends. While there are
    /// any, each has a handle of the segment, and keeps it until it is removed under the lock. So
    /// the reference that is taken here is not the last, unless the program has forgotten a future.
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
        // The process gives up its slot here, which takes the lock.
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
            // Its next poll looks for a free waiter again.
            None => is_end_of_span,
        };
        let over = self.tasks.values_mut().filter(|task| is_over(task));
        over.filter_map(|task| task.waker.take()).collect()
    }

    /// Does what each thread does that waits for units: reclaims from the dead, and grants.
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
    /// Lets `waker` be called when a task should look whether its wait is over.
    ///
    /// The caller looks again afterwards, because the wait may have ended before this call. Starts
    /// the thread that wakes, if there is none. If the system has no thread, `waker` is called at
    /// once.
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
            // A thread of such a child would end with it.
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

    /// Lets the thread end, if there is one. Nobody waits any more.
    pub(super) fn end_tasks(&self, membership: &Membership) {
        let record = membership.participant().and_then(|own| self.record(own.slot));
        if let Some(record) = record
            && self.tasks.with_table(|table| table.has_thread)
        {
            record.wake_tasks();
        }
    }
}

/// Wakes tasks whose wait is over, until there are none.
fn wake_tasks(member: &Weak<Member>, tasks: &Tasks, mapping: &Mapping, membership: &Membership) {
    let nobody = AtomicU32::new(0);
    let mut end_of_span = Instant::now() + LOOK_EVERY;
    loop {
        let slot = membership.participant().map(|own| own.slot as usize);
        let record = slot.and_then(|slot| records(mapping).get(slot));
        // Without a slot there is nobody who wakes.
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
            // Forgotten, because a payload may panic when it is dropped. The panic of one task is
            // none of the others'.
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
