//! Waiters of shared budgets under long random runs: limits hold, and nobody is overtaken.

use std::sync::{Arc, Mutex};

use thiscpu::Tier;
use thiscpu::model::{self, Machine, Process, SharedBudgets, WaitResult};

use crate::run::{in_random_orders_on, on_threads};

const LIMIT: u64 = 40;
const PROCESSES: usize = 3;

type Budgets = SharedBudgets<LIMIT, 2, { PROCESSES + 1 }>;

const MACHINE: Machine = Machine::new(2, Tier::Atomic);

/// What the test knows about units, at every moment.
#[derive(Default)]
struct Witness {
    /// The units that each process holds, from the end of an acquire to the begin of a release.
    held: [u64; PROCESSES],
    /// For each grant and acquire when its call began, and when it was known.
    granted: Vec<(u64, u64)>,
}

struct Worker<'a> {
    budgets: &'static Budgets,
    me: Process,
    number: usize,
    witness: &'a Mutex<Witness>,
}

impl Worker<'_> {
    fn hold(&self, n: u64, began: u64) {
        let mut witness = self.witness.lock().expect("no panic");
        witness.held[self.number] += n;
        let held: u64 = witness.held.iter().sum();
        assert!(held <= LIMIT, "{held} units are held");
        witness.granted.push((began, model::tick()));
    }

    fn release(&self, n: u64) {
        self.witness.lock().expect("no panic").held[self.number] -= n;
        self.budgets.release(0, self.me, n);
    }

    /// Asserts that nobody who came after `enqueued` got units before `began`.
    fn assert_not_overtaken(&self, enqueued: u64, began: u64) {
        let witness = self.witness.lock().expect("no panic");
        let overtaken = |&&(came, known): &&(u64, u64)| came > enqueued && known < began;
        assert_eq!(witness.granted.iter().find(overtaken), None, "enqueued at {enqueued}");
    }

    /// Waits for units, and gives up after some looks. Returns how many it got.
    fn acquire(&self, n: u64) -> u64 {
        let began = model::tick();
        let mut wait = self.budgets.enqueue(0, self.me, n);
        let enqueued = model::tick();
        for _ in 0..model::choose(20) {
            let WaitResult::Waiting(place) = wait else { break };
            let looked = model::tick();
            wait = self.budgets.poll(0, self.me, place);
            if matches!(wait, WaitResult::Waiting(_)) {
                self.assert_not_overtaken(enqueued, looked);
            }
        }
        if let WaitResult::Waiting(place) = wait {
            wait = self.budgets.cancel(0, place);
        }
        match wait {
            WaitResult::Granted => {
                self.hold(n, began);
                n
            }
            WaitResult::Left | WaitResult::Full => 0,
            other => panic!("{other:?}"),
        }
    }

    fn try_acquire(&self, n: u64) -> u64 {
        let began = model::tick();
        match self.budgets.try_acquire(0, self.me, n) {
            Ok(()) => {
                self.hold(n, began);
                n
            }
            Err(_) => 0,
        }
    }

    fn run(&self) {
        for _ in 0..1 + model::choose(4) {
            let n = [1, 10, 30, LIMIT][model::choose(4)];
            let held = match model::choose(3) {
                0 => self.try_acquire(n),
                _ => self.acquire(n),
            };
            self.release(held);
        }
    }
}

fn processes(budgets: &'static Budgets, number: usize, deaths: usize, witness: &Mutex<Witness>) {
    for life in 0..=deaths {
        let Some(me) = budgets.try_attach(number as u32) else { return };
        let worker = Worker { budgets, me, number, witness };
        let steps = if life < deaths { model::choose(150) } else { usize::MAX };
        if model::killed_after(steps, || worker.run()).is_some() {
            return;
        }
        // What the dead process held may be granted from now on.
        witness.lock().expect("no panic").held[number] = 0;
        budgets.end(me);
    }
}

fn random_waits(deaths: usize) {
    // Leaked, because no other budget may have this address in the same execution.
    let budgets: &Budgets = Box::leak(Box::new(Budgets::new()));
    let witness = Arc::new(Mutex::new(Witness::default()));
    let last = budgets.attach(PROCESSES as u32);
    on_threads(PROCESSES, 2, move |number| processes(budgets, number, deaths, &witness));
    // All others have released their units, or are dead.
    assert_eq!(budgets.instant(0, last), (LIMIT, LIMIT as i64));
    assert!(matches!(budgets.enqueue(0, last, LIMIT), WaitResult::Granted));
    assert!(budgets.try_acquire(0, last, 1).is_err());
}

#[test]
fn waiters_are_not_overtaken() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_waits(0));
}

#[test]
fn waiters_are_not_overtaken_with_deaths() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_waits(1));
}

// Nobody looks without a wake: a wake that is lost ends the run as a deadlock.
#[test]
fn waiters_are_woken() {
    in_random_orders_on(&[MACHINE], 10_000, |_| {
        let budgets: &Budgets = Box::leak(Box::new(Budgets::new()));
        on_threads(3, 2, move |number| {
            let me = budgets.attach(number as u32);
            for n in [[30, 10], [20, LIMIT], [LIMIT - 1, 1]][number] {
                let wait = match budgets.enqueue(0, me, n) {
                    WaitResult::Waiting(place) => budgets.wait(0, me, place),
                    over => over,
                };
                assert!(matches!(wait, WaitResult::Granted), "{wait:?}");
                budgets.release(0, me, n);
            }
        });
    });
}

// All waits end when the budget is closed, and no unit is lost.
#[test]
fn waiters_are_woken_by_close() {
    in_random_orders_on(&[MACHINE], 10_000, |_| {
        let budgets: &Budgets = Box::leak(Box::new(Budgets::new()));
        let held = on_threads(3, 2, move |number| {
            let me = budgets.attach(number as u32);
            if number == 2 {
                budgets.close(0);
                return 0;
            }
            let n = [30, 20][number];
            let wait = match budgets.enqueue(0, me, n) {
                WaitResult::Waiting(place) => budgets.wait(0, me, place),
                over => over,
            };
            match wait {
                WaitResult::Granted => n,
                WaitResult::Closed => 0,
                other => panic!("{other:?}"),
            }
        });
        let last = budgets.attach(PROCESSES as u32);
        let held: u64 = held.into_iter().sum();
        assert_eq!(budgets.instant(0, last), (LIMIT, (LIMIT - held) as i64));
    });
}
