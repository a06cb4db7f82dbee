//! Tasks that wait for units, and the thread that wakes them.
//!
//! A task does not sleep on a word, and no other process can call its waker. So a process with
//! tasks that wait has one thread for each attached segment. The thread sleeps on a word of the
//! process's slot. Each thread that ends a wait of one of these tasks changes that word. The thread
//! also looks from time to time, as a waiting thread does, but for all tasks at once.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Member;
use super::membership::Membership;
use crate::segment::budget::{Participant, Waiting};
use crate::segment::file::budgets::BudgetAt;
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use crate::sys::futex::{self, Scope};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;
use crate::sys::{quiet_thread, waker};

/// The longest time between two looks of a waiter.
pub(in crate::segment) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The waker of a task. If it panics when it is dropped, the panic ends there.
pub(in crate::segment) struct TaskWaker(Option<Waker>);

impl TaskWaker {
    /// Clones a waker. That runs code of the program, which may panic.
    pub(in crate::segment) fn new(waker: &Waker) -> TaskWaker {
        TaskWaker(Some(waker.clone()))
    }
}

impl Drop for TaskWaker {
    fn drop(&mut self) {
        waker::drop_caught(self.0.take());
    }
}

/// A task that waits.
pub(in crate::segment) struct Task {
    pub(in crate::segment) budget: BudgetAt,
    /// The participant that waits.
    pub(in crate::segment) by: Participant,
    /// Its place in the queue; `None` if no waiter was free.
    pub(in crate::segment) place: Option<Waiting>,
    /// Empty once the task was woken.
    pub(in crate::segment) waker: TaskWaker,
}

/// The tasks of this process that wait for budgets of one attached segment.
#[derive(Default)]
pub(in crate::segment) struct Tasks {
    /// The number of the next task. Children continue to count from it.
    next: AtomicU64,
    lock: Lock,
    table: UnsafeCell<Table>,
    /// Held while the thread uses `member`, and while that is taken back. Before `lock`.
    use_lock: Lock,
    /// The member whose tasks these are, from the start of a thread until it is dropped.
    ///
    /// A thread has no handle: a child could not drop it, and would keep the segment attached.
    member: AtomicPtr<Member>,
}

#[derive(Default)]
struct Table {
    tasks: BTreeMap<u64, Task>,
    has_thread: bool,
}

/// What the thread has seen in a look.
struct Look {
    /// The word that it sleeps on, which may be unmapped by now, and the value before the look.
    word: *const AtomicU32,
    seen: u32,
    /// The wakers of tasks whose wait is over.
    over: Vec<Waker>,
}

// SAFETY: only the holder of the lock accesses the table, whose contents can be sent. Only the
// holder of `use_lock` accesses the member through the pointer, and a member can be shared.
unsafe impl Sync for Tasks {}

/// The word of a thread whose process has no slot. Nobody changes it.
static NOBODY: AtomicU32 = AtomicU32::new(0);

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

    /// Looks at all tasks, and finds those whose wait is over.
    ///
    /// Returns `None` if no task waits at the end of a span, or if the member is dropped; then the
    /// thread ends.
    fn look(&self, is_end_of_span: bool) -> Option<Look> {
        let _guard = self.use_lock.lock();
        // Relaxed: the start of the thread comes after the store of the pointer, and `use_lock`
        // orders the store of null.
        //
        // SAFETY: the pointer is null or that of a member whose `drop` first takes `use_lock` to
        // clear it. So the member lives while this thread holds that lock. The member is pinned,
        // so the exclusive reference of its `drop` does not exclude this one.
        let member = unsafe { self.member.load(Relaxed).as_ref() }?;
        let record = member.membership().participant().and_then(|own| member.record(own.slot));
        // Without a slot, no other thread or process changes a word.
        let word = record.map_or(&NOBODY, |record| record.task_wakes());
        // Acquire: pairs with the addition of a wake; the look comes after it.
        let seen = word.load(Acquire);
        if is_end_of_span {
            // Without the table's lock, because this makes system calls.
            member.tend(&self.with_table(|table| table.budgets()));
        }
        let over = self.with_table(|table| {
            table.has_thread = !(is_end_of_span && table.tasks.is_empty());
            table.has_thread.then(|| table.take_over(member, is_end_of_span))
        })?;
        Some(Look { word, seen, over })
    }
}

impl Table {
    /// Returns the budgets that tasks wait for, each once.
    fn budgets(&self) -> Vec<BudgetAt> {
        let mut budgets: Vec<BudgetAt> = Vec::new();
        for Task { budget, .. } in self.tasks.values() {
            if !budgets.iter().any(|it| it.is(budget)) {
                budgets.push(*budget);
            }
        }
        budgets
    }

    /// Takes the wakers of tasks whose wait is over.
    fn take_over(&mut self, member: &Member, is_end_of_span: bool) -> Vec<Waker> {
        let (own, is_lost) = (member.membership().participant(), member.mapping.is_lost());
        self.take_wakers(|task| match &task.place {
            // Others free the waiter of a former participant. The next poll joins again.
            _ if is_lost || Some(task.by) != own => true,
            Some(place) => task.budget.parts(&member.mapping).is_over(place),
            // The next poll of the task looks for a free waiter again.
            None => is_end_of_span,
        })
    }

    fn take_wakers(&mut self, which: impl Fn(&Task) -> bool) -> Vec<Waker> {
        let tasks = self.tasks.values_mut().filter(|task| which(task));
        tasks.filter_map(|task| task.waker.0.take()).collect()
    }
}

impl Member {
    /// Registers a task, to be woken when it should look whether its wait is over.
    ///
    /// The caller looks again afterwards, because the wait may have ended before this call. Starts
    /// the thread that wakes tasks, if there is none, and returns whether there is one. If the
    /// system makes no thread, this wakes all tasks, and each poll does what the thread would do.
    pub(in crate::segment) fn watch(self: &Arc<Self>, number: u64, task: Task) -> bool {
        let is_vfork_child = Host::is_vfork_child();
        let (old, had_thread) = self.tasks.with_table(|table| {
            let (old, had_thread) = (table.tasks.insert(number, task), table.has_thread);
            // A thread that such a child starts would end with it.
            table.has_thread = had_thread || !is_vfork_child;
            (old, had_thread)
        });
        let has_thread = had_thread || (!is_vfork_child && self.start_thread());
        if !has_thread {
            // All, because other tasks may have relied on the thread meanwhile.
            let wakers = self.tasks.with_table(|table| {
                table.has_thread = false;
                table.take_wakers(|_| true)
            });
            waker::wake_all(wakers);
        }
        drop(old);
        has_thread
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        // Relaxed: the start of the thread orders it. No other value than null is replaced.
        self.tasks.member.store(ptr::from_ref(&**self).cast_mut(), Relaxed);
        let tasks = Arc::clone(&self.tasks);
        quiet_thread::start("thiscpu-tasks", move || wake_tasks(&tasks))
    }

    /// Reclaims from the dead and grants, as a thread that waits for units does.
    fn tend(&self, budgets: &[BudgetAt]) {
        self.keep_lock_at_times();
        // A process that has lost its slot may look at all of them.
        let nobody = Participant { slot: u32::MAX, generation: 0 };
        let me = self.membership().participant().unwrap_or(nobody);
        for budget in budgets {
            budget.parts(&self.mapping).tend(me, self);
        }
    }

    /// Takes this member from the thread. Waits until the thread does not use it.
    pub(super) fn leave_thread(&self) {
        let _guard = self.tasks.use_lock.lock();
        // Relaxed: the lock orders it.
        self.tasks.member.store(ptr::null_mut(), Relaxed);
    }

    /// Wakes the thread, if there is one, so that it ends. It uses this member no more.
    pub(super) fn end_thread(&self, membership: &Membership) {
        let record = membership.participant().and_then(|own| self.record(own.slot));
        if let Some(record) = record
            && self.tasks.with_table(|table| table.has_thread)
        {
            record.wake_tasks();
        }
    }
}

/// Wakes tasks whose wait is over, until no task waits.
fn wake_tasks(tasks: &Tasks) {
    let mut end_of_span = Instant::now() + LOOK_EVERY;
    loop {
        let is_end_of_span = Instant::now() >= end_of_span;
        if is_end_of_span {
            end_of_span = Instant::now() + LOOK_EVERY;
        }
        let Some(Look { word, seen, over }) = tasks.look(is_end_of_span) else { return };
        waker::wake_all(over);
        let left = end_of_span.saturating_duration_since(Instant::now());
        // If the member is dropped meanwhile, the word may be unmapped, or be in another mapping.
        futex::wait(word, seen, Some(left), Scope::Shared);
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}
