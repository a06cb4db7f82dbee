//! The index of a shared registry whose users are killed or stopped at each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu::Tier;
use thiscpu::model::{self, Machine, Schedule, SharedFreeList, SharedNames, random};

use crate::run::{CPUS, in_random_orders, on_threads};

type Names = SharedNames<16, 8>;

/// Threads are not moved at random: each run is one order of steps.
const MACHINE: Machine = Machine { preempt_one_in: 0, ..Machine::new(2, Tier::Atomic) };

fn names() -> &'static Names {
    // Leaked, because no other index may have this address in the same execution.
    Box::leak(Box::new(Names::new()))
}

/// Runs `test` once, and returns what it says.
fn once(test: impl Fn() -> bool + Send + Sync + 'static) -> bool {
    let result = Arc::new(AtomicBool::new(false));
    let stored = result.clone();
    random(MACHINE, Schedule::Uniform, 1, move || stored.store(test(), SeqCst));
    result.load(SeqCst)
}

/// Asserts that all names have cells of their own, and returns how many cells were taken.
fn assert_distinct(names: &Names, count: u64) -> u64 {
    let mut cells: Vec<_> = (0..count).map(|name| names.cell(name).expect("room")).collect();
    cells.sort_unstable();
    cells.dedup();
    assert_eq!(cells.len() as u64, count, "two names have one cell");
    names.cells_used()
}

#[test]
fn killed_insert_costs_one_cell_at_most() {
    let mut step = 0;
    let kill = |step| {
        let names = names();
        names.cell(0).expect("room");
        let was_killed = model::killed_after(step, || names.cell(1)).is_none();
        let used = assert_distinct(names, 4);
        assert!(used == 4 || was_killed && used == 5, "{used} cells after {step} steps");
        was_killed
    };
    while once(move || kill(step)) {
        step += 1;
    }
    assert!(step > 8, "{step} steps");
}

// The others insert the very name, and others behind it.
#[test]
fn stopped_insert_goes_on() {
    let mut step = 0;
    let stop = |step| {
        let names = names();
        names.cell(0).expect("room");
        let others = move || {
            (1..4).for_each(|name| assert!(names.add(name) == Some(0)));
        };
        let (before, was_stopped) = model::interrupted_after(step, others, || names.add(1));
        assert_eq!(names.add(1), Some(1 + u64::from(was_stopped)));
        assert!(before == Some(0) || was_stopped && before == Some(1), "{before:?}");
        // The spare of the stopped process is used.
        let used = assert_distinct(names, 6);
        assert_eq!(used, 6, "stopped after {step} steps");
        was_stopped
    };
    while once(move || stop(step)) {
        step += 1;
    }
    assert!(step > 8, "{step} steps");
}

#[test]
fn threads_that_race_get_one_cell_for_each_name() {
    in_random_orders(2_000, || {
        let names = names();
        let work = move |_| {
            for _ in 0..3 {
                names.add(model::choose(4) as u64).expect("room");
            }
        };
        on_threads(3, CPUS, work);
        let used = assert_distinct(names, 4);
        // Three threads insert at once, and what losers leave is used by the next inserts.
        assert!(used <= 6, "{used} cells");
        let counts: u64 = (0..4).map(|name| names.add(name).expect("it exists")).sum();
        assert_eq!(counts, 9);
    });
}

// The first item comes back while a call is stopped, but the second one is in use then.
#[test]
fn stopped_take_finds_that_the_list_has_changed() {
    let mut step = 0;
    let stop = |step| {
        let list: &SharedFreeList<3> = Box::leak(Box::new(SharedFreeList::new()));
        [3, 2, 1].map(|item| list.push(item));
        let others = move || {
            let [first, _second] = [(); 2].map(|()| list.take().expect("an item"));
            list.push(first);
        };
        let (own, was_stopped) = model::interrupted_after(step, others, || list.take());
        let mut left = vec![own.expect("an item")];
        left.extend(std::iter::from_fn(|| list.take()).take(5));
        left.sort_unstable();
        // The others keep the second item of those that they found.
        let is_right = match was_stopped {
            true => left == [1, 3] || left == [1, 2],
            false => left == [1, 2, 3],
        };
        assert!(is_right, "stopped after {step} steps: {left:?}");
        was_stopped
    };
    while once(move || stop(step)) {
        step += 1;
    }
    assert!(step > 2, "{step} steps");
}
