//! A program that uses all of a segment, whatever is in it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use thiscpu::__internal::inspect;
use thiscpu::{Segment, SegmentError, SegmentView, SharedAcquireError, SharedBudget};
use thiscpu::{SharedCounter, SharedCounters};

use super::scene::{GROUP, LIMIT};

/// The objects of a segment, as far as they can be found, and the errors so far.
pub(super) struct User {
    segment: Segment,
    counters: Vec<SharedCounter>,
    group: Option<SharedCounters<3>>,
    budgets: Vec<SharedBudget>,
    errors: u64,
}

/// Asserts that an error says what failed, why, and what to do.
fn assert_is_clear(error: &SegmentError) {
    let message = error.to_string();
    assert!(message.starts_with("cannot ") && message.contains("; "), "unclear: {message}");
}

/// Notes an error, which must be clear.
fn note<T>(errors: &mut u64, result: Result<T, SegmentError>) -> Option<T> {
    result
        .inspect_err(|error| {
            assert_is_clear(error);
            *errors += 1;
        })
        .ok()
}

/// Notes the error of an acquire. Units may be unavailable for any reason.
fn note_acquire<T>(errors: &mut u64, result: Result<T, SharedAcquireError>) -> Option<T> {
    result
        .inspect_err(|error| {
            if let SharedAcquireError::NoSlot(why) = error {
                assert_is_clear(why);
                *errors += 1;
            }
        })
        .ok()
}

impl User {
    /// Attaches to a file; `None` if the library refuses it.
    pub(super) fn attach(fd: OwnedFd) -> Option<User> {
        let mut errors = 0;
        let segment = note(&mut errors, Segment::from_fd(fd))?;
        Some(User { segment, counters: vec![], group: None, budgets: vec![], errors })
    }

    /// Looks for objects, and makes those that are not there.
    pub(super) fn find(&mut self) {
        let (segment, errors) = (&self.segment, &mut self.errors);
        let counters = ["counter", "negative", "new"].map(|name| segment.counter(name));
        self.counters = counters.into_iter().filter_map(|it| note(errors, it)).collect();
        self.group = note(errors, segment.counters(GROUP));
        let budgets = ["limit", "second", "third"].map(|name| segment.budget(name, LIMIT));
        self.budgets = budgets.into_iter().filter_map(|it| note(errors, it)).collect();
        // This fails, because of another kind of object or because of damage.
        note(&mut 0, segment.counters::<2>("counter"));
        for object in segment.objects() {
            note(errors, object);
        }
    }

    /// Makes calls of each object. The results may be any values.
    pub(super) fn use_all(&mut self) {
        for counter in &self.counters {
            for n in [3, 1 << 40, -1] {
                counter.add(n);
                std::hint::black_box(counter.sum());
            }
        }
        if let Some(group) = &self.group {
            group.add(2, 1);
            group.add(1, -1 << 33);
            std::hint::black_box((group.sum(), group.sum()));
        }
        for budget in &self.budgets {
            use_budget(budget, &mut self.errors);
        }
    }

    /// Detaches, and returns whether each call has succeeded.
    pub(super) fn detach(self) -> bool {
        self.errors == 0
    }
}

fn use_budget(budget: &SharedBudget, errors: &mut u64) {
    if note_acquire(errors, budget.try_acquire(2)).is_some() {
        budget.release(2);
    }
    note_acquire(errors, budget.lease(1));
    note_acquire(errors, budget.try_acquire(LIMIT / 2));
    let patience = Duration::from_micros(50);
    note_acquire(errors, budget.acquire_timeout(LIMIT, patience));
    budget.set_limit(LIMIT + 2);
    std::hint::black_box((budget.available(), budget.acquired(), budget.limit()));
    std::hint::black_box((budget.waiters(), budget.is_closed()));
    budget.release(LIMIT / 2);
    note_acquire(errors, budget.acquire_timeout(1, Duration::ZERO));
    budget.close();
}

/// Looks at a file as a program that only reads does.
pub(super) fn look(file: &File) {
    let fd = file.try_clone().expect("a duplicate").into();
    let Some(view) = note(&mut 0, SegmentView::from_fd(fd)) else { return };
    for name in ["counter", "negative"] {
        note(&mut 0, view.counter(name)).map(|counter| std::hint::black_box(counter.bounds()));
    }
    note(&mut 0, view.counters::<3>(GROUP)).map(|group| std::hint::black_box(group.bounds()));
    view.objects().for_each(|object| _ = note(&mut 0, object));
    note(&mut 0, inspect::check(&view));
    std::hint::black_box((inspect::usage(&view), view.is_lost()));
}
