//! Shared budgets whose users are killed or stopped at each step of each operation.
//!
//! One process is killed before a step. A second one recovers, and is killed before each of its
//! steps too. A third one must then find every unit. Or the first process is stopped at a step,
//! while others make many calls, and goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu::Tier;
use thiscpu::model::{self, Machine, Process, Schedule, SharedBudgets, WaitResult, random};

const LIMIT: u64 = 40;

type Budgets = SharedBudgets<LIMIT, 2, 3>;

/// Threads are not moved at random: each run is one order of steps.
const MACHINE: Machine = Machine { preempt_one_in: 0, ..Machine::new(2, Tier::Atomic) };

/// Three processes with some units, before one of them makes a call.
#[derive(Clone, Copy)]
struct Scene {
    budgets: &'static Budgets,
    victim: Process,
    other: Process,
    last: Process,
}

impl Scene {
    /// Gives the victim 5 units of each budget, and the other process 3 of the first one.
    ///
    /// Both have credit on CPU 0, and the victim has released on CPU 1 what it acquired on CPU 0.
    fn new() -> Scene {
        // Leaked, because no other budget may have this address in the same execution.
        let budgets: &Budgets = Box::leak(Box::new(Budgets::new()));
        let [victim, other, last] = [0, 1, 2].map(|slot| budgets.attach(slot));
        let scene = Scene { budgets, victim, other, last };
        scene.acquire(victim, 7);
        model::run_on(1);
        budgets.release(0, victim, 2);
        model::run_on(0);
        scene.acquire(other, 3);
        budgets.try_acquire(1, victim, 5).expect("units are available");
        scene
    }

    fn acquire(&self, who: Process, n: u64) {
        self.budgets.try_acquire(0, who, n).expect("units are available");
    }

    /// Takes all units that are free; the budget is in shared mode then.
    fn acquire_rest(&self) -> u64 {
        let (_, free) = self.budgets.instant(0, self.last);
        self.acquire(self.last, free as u64);
        free as u64
    }

    /// Asserts that units are free, but for those that live processes hold.
    fn assert_free(&self, held: u64) {
        let (limit, free) = self.budgets.instant(0, self.last);
        assert_eq!(free, limit as i64 - held as i64);
        assert_eq!(self.budgets.limit(0), limit);
        assert_eq!(self.budgets.instant(1, self.last), (LIMIT, LIMIT as i64));
    }
}

/// What the victim does: it returns how many more units of the first budget it holds.
type Call = fn(Scene) -> i64;

/// A call, and the units that the last process holds before it.
type Case = (&'static str, fn(Scene) -> u64, Call);

fn nothing_more(_: Scene) -> u64 {
    0
}

/// Takes all units, and lets the other process wait for 10 of them.
fn let_other_wait(scene: Scene) -> u64 {
    let held = scene.acquire_rest();
    let wait = scene.budgets.enqueue(0, scene.other, 10);
    assert!(matches!(wait, WaitResult::Waiting(_)), "{wait:?}");
    held
}

fn acquire(scene: Scene, n: u64) -> i64 {
    scene.budgets.try_acquire(0, scene.victim, n).map_or(0, |()| n as i64)
}

fn release(scene: Scene, n: u64) -> i64 {
    scene.budgets.release(0, scene.victim, n);
    -(n as i64)
}

fn release_at_once(scene: Scene, n: u64) -> i64 {
    scene.budgets.release_at_once(0, scene.victim, n);
    -(n as i64)
}

/// Waits for units, and gives up after two looks.
fn wait(scene: Scene, n: u64) -> i64 {
    let mut wait = scene.budgets.enqueue(0, scene.victim, n);
    for _ in 0..2 {
        if let WaitResult::Waiting(place) = wait {
            wait = scene.budgets.poll(0, scene.victim, place);
        }
    }
    if let WaitResult::Waiting(place) = wait {
        wait = scene.budgets.cancel(0, place);
    }
    match wait {
        WaitResult::Granted => n as i64,
        WaitResult::Left | WaitResult::Closed => 0,
        other => panic!("{other:?}"),
    }
}

const CASES: [Case; 17] = [
    ("acquire of credit", nothing_more, |scene| acquire(scene, 1)),
    ("acquire with a batch", nothing_more, |scene| {
        model::run_on(1);
        acquire(scene, 4)
    }),
    ("acquire of all units", nothing_more, |scene| acquire(scene, LIMIT - 8)),
    (
        "acquire in shared mode",
        |scene| {
            scene.budgets.instant(0, scene.last);
            0
        },
        |scene| acquire(scene, 1),
    ),
    ("refusal", nothing_more, |scene| acquire(scene, LIMIT)),
    ("release to a pair", nothing_more, |scene| release(scene, 1)),
    ("release to the pool", Scene::acquire_rest_of, |scene| release(scene, 5)),
    ("release to a closed pair", Scene::acquire_rest_of, |scene| release_at_once(scene, 5)),
    ("look", nothing_more, |scene| {
        scene.budgets.instant(0, scene.victim);
        0
    }),
    ("lower limit", nothing_more, |scene| {
        scene.budgets.set_limit(0, 4);
        0
    }),
    ("higher limit", nothing_more, |scene| {
        scene.budgets.set_limit(0, 100);
        0
    }),
    ("close", let_other_wait, |scene| {
        scene.budgets.close(0);
        0
    }),
    ("wait that is granted", nothing_more, |scene| wait(scene, LIMIT - 8)),
    ("wait that is canceled", Scene::acquire_rest_of, |scene| wait(scene, 1)),
    ("wait behind another", let_other_wait, |scene| wait(scene, 1)),
    ("release to a waiter", let_other_wait, |scene| release(scene, 5)),
    ("release to a closed pair, for a waiter", let_other_wait, |scene| release_at_once(scene, 5)),
];

impl Scene {
    fn acquire_rest_of(self) -> u64 {
        self.acquire_rest()
    }
}

/// Runs `test` once, and returns what it says.
fn once(test: impl Fn() -> bool + Send + Sync + 'static) -> bool {
    let result = Arc::new(AtomicBool::new(false));
    let stored = result.clone();
    random(MACHINE, Schedule::Uniform, 1, move || stored.store(test(), SeqCst));
    result.load(SeqCst)
}

/// Kills the victim before a step, and the process that recovers before one of its steps.
///
/// Returns which of them were killed.
fn kill(&(_, prepare, call): &Case, first: usize, second: usize) -> [bool; 2] {
    let scene = Scene::new();
    let held_by_last = prepare(scene);
    if model::killed_after(first, || call(scene)).is_some() {
        return [false; 2];
    }
    scene.budgets.end(scene.victim);
    let recover = || {
        scene.budgets.instant(0, scene.other);
        scene.budgets.instant(1, scene.other);
    };
    let is_whole = model::killed_after(second, recover).is_some();
    if !is_whole {
        scene.budgets.end(scene.other);
    }
    let before = scene.budgets.held(0, 1);
    scene.budgets.instant(0, scene.last);
    scene.budgets.instant(1, scene.last);
    let held_by_other = match is_whole {
        true => scene.budgets.held(0, 1),
        false => 0,
    };
    assert!(before == held_by_other || !is_whole, "{before} and {held_by_other}");
    scene.assert_free(held_by_last + held_by_other as u64);
    for slot in 0..if is_whole { 1 } else { 2 } {
        assert_eq!([0, 1].map(|budget| scene.budgets.held(budget, slot)), [0, 0]);
        scene.budgets.attach(slot);
    }
    [true, !is_whole]
}

#[test]
fn units_come_back_when_holder_and_recoverer_are_killed() {
    for case in &CASES {
        let mut first = 0;
        let mut runs = 0;
        while once(move || kill(case, first, usize::MAX)[0]) {
            let mut second = 0;
            while once(move || kill(case, first, second)[1]) {
                second += 1;
            }
            runs += second + 1;
            first += 1;
        }
        println!("{}: {first} steps, {runs} runs", case.0);
    }
}

/// Makes 200 calls of others, who end with as many units as they had.
fn others(scene: Scene) {
    let Scene { budgets, other, last, .. } = scene;
    for round in 0..50 {
        model::run_on(round % 2);
        for (who, n) in [(other, 1), (last, 2), (other, LIMIT), (last, 11)] {
            if budgets.try_acquire(0, who, n).is_ok() {
                budgets.release(0, who, n);
            }
        }
    }
    model::run_on(0);
}

/// Stops the victim before a step, and returns whether it got that far.
fn stop(&(_, prepare, call): &Case, step: usize) -> bool {
    let scene = Scene::new();
    let held_by_last = prepare(scene);
    let (change, was_stopped) =
        model::interrupted_after(step, move || others(scene), || call(scene));
    assert_eq!(scene.budgets.instant(1, scene.last), (LIMIT, LIMIT as i64 - 5));
    let held: i64 = [0, 1].map(|slot| scene.budgets.held(0, slot)).iter().sum();
    assert_eq!(scene.budgets.held(0, 0), 5 + change);
    let (limit, free) = scene.budgets.instant(0, scene.last);
    assert_eq!(free, limit as i64 - held - held_by_last as i64);
    was_stopped
}

#[test]
fn calls_of_stopped_process_happen_once() {
    for case in &CASES {
        let mut step = 0;
        while once(move || stop(case, step)) {
            step += 1;
        }
        println!("{}: {step} steps", case.0);
    }
}
