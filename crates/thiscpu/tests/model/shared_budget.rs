//! Shared budgets under long random runs: every history is linearizable, also with deaths.
//!
//! A process is a thread here. When it is killed, its call may have had its effect or not. Some
//! time later all that it held is free. Each refusal that begins after the death sees that.

use std::sync::{Arc, Mutex};

use thiscpu::Tier;
use thiscpu::TryAcquireError::{self, Exhausted};
use thiscpu::model::{self, Machine, Process, SharedBudgets};

use crate::history::{Call, Specification, is_linearizable};
use crate::run::{in_random_orders_on, on_threads};

const LIMIT: u64 = 40;
/// The slots of processes that may be killed.
const MORTAL: usize = 3;
/// The processes that a slot has in one execution, one after the other.
const LIVES: usize = 2;

/// The number of a process: its slot, and its life.
type Id = usize;

type Budgets = SharedBudgets<LIMIT, 2, { MORTAL + 1 }>;

/// Both tiers use the same code, and the budget has two lanes.
const MACHINE: Machine = Machine::new(2, Tier::Atomic);

/// The processes that were dead before a call began, as bits.
type Dead = u32;

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire(Id, u64, Result<(), TryAcquireError>, Dead),
    Release(Id, u64),
    Instant((u64, i64), Dead),
    SetLimit(u64),
    Close,
    /// The units of a killed process come back.
    Reclaim(Id),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    limit: u64,
    held: [u64; MORTAL * LIVES],
    reclaimed: Dead,
    is_closed: bool,
}

impl State {
    fn new() -> State {
        State { limit: LIMIT, held: [0; MORTAL * LIVES], reclaimed: 0, is_closed: false }
    }

    fn free(&self) -> i64 {
        self.limit as i64 - self.held.iter().sum::<u64>() as i64
    }

    fn with_held(&self, id: Id, held: u64) -> State {
        let mut state = self.clone();
        state.held[id] = held;
        state
    }

    /// Returns whether all units of these processes came back.
    fn has_reclaimed(&self, dead: Dead) -> bool {
        dead & !self.reclaimed == 0
    }
}

impl Specification for State {
    type Op = Op;

    fn after(&self, op: &Op) -> Option<State> {
        let same = |holds: bool| holds.then(|| self.clone());
        match *op {
            Op::Acquire(_, _, Err(TryAcquireError::Closed), _) => same(self.is_closed),
            Op::Acquire(..) if self.is_closed => None,
            Op::Acquire(id, n, Ok(()), _) => {
                (n as i64 <= self.free()).then(|| self.with_held(id, self.held[id] + n))
            }
            Op::Acquire(_, n, Err(Exhausted { available }), dead) => {
                let is_exact = available as i64 == self.free().max(0) && available < n;
                same(is_exact && self.has_reclaimed(dead))
            }
            Op::Release(id, n) => self.held[id].checked_sub(n).map(|held| self.with_held(id, held)),
            Op::Instant(seen, dead) => {
                same(seen == (self.limit, self.free()) && self.has_reclaimed(dead))
            }
            Op::SetLimit(limit) => Some(State { limit, ..self.clone() }),
            Op::Close => Some(State { is_closed: true, ..self.clone() }),
            Op::Reclaim(id) => {
                let reclaimed = self.reclaimed | 1 << id;
                Some(State { reclaimed, ..self.with_held(id, 0) })
            }
        }
    }
}

/// The calls that ended, and those during which a process was killed.
#[derive(Default)]
struct History {
    ended: Mutex<Vec<Call<Op>>>,
    cut: Mutex<Vec<Call<Op>>>,
    dead: Mutex<Dead>,
}

impl History {
    fn dead(&self) -> Dead {
        *self.dead.lock().expect("no panic")
    }

    /// Records a death, after which units come back at some time.
    fn push_death(&self, id: Id, began: u64) {
        *self.dead.lock().expect("no panic") |= 1 << id;
        let call = Call { began, ended: u64::MAX, op: Op::Reclaim(id) };
        self.ended.lock().expect("no panic").push(call);
    }

    fn push(&self, began: u64, op: Op) {
        let call = Call { began, ended: model::tick(), op };
        self.ended.lock().expect("no panic").push(call);
    }

    /// Asserts that some order explains the calls, with or without those that were cut.
    fn assert_linearizable(&self) {
        let ended = self.ended.lock().expect("no panic");
        let cut = self.cut.lock().expect("no panic");
        let explains = |chosen: u32| {
            let chosen = cut.iter().enumerate().filter(|(i, _)| chosen >> i & 1 != 0);
            let mut calls: Vec<_> =
                ended.iter().chain(chosen.map(|(_, call)| call)).cloned().collect();
            calls.sort_by_key(|call| call.began);
            is_linearizable(State::new(), &calls)
        };
        if !(0..1 << cut.len()).any(explains) {
            let mut calls = ended.clone();
            calls.sort_by_key(|call| call.began);
            panic!("{calls:#?} and cut: {cut:#?}");
        }
    }
}

/// What else the random calls may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    Nothing,
    SetLimit,
    Close,
}

/// A process that makes random calls, and may be killed.
struct Worker<'a> {
    budgets: &'static Budgets,
    me: Process,
    id: Id,
    may: May,
    history: &'a History,
    /// The call that was begun, but has not ended.
    pending: Mutex<Option<(u64, Op)>>,
}

impl Worker<'_> {
    /// Makes random calls; releases only units that this process holds.
    fn run(&self) {
        let mut held = 0;
        for _ in 0..2 + model::choose(5) {
            match self.call(self.plan(held)) {
                Op::Acquire(_, n, Ok(()), _) => held += n,
                Op::Release(_, n) => held -= n,
                _ => {}
            }
        }
    }

    fn plan(&self, held: u64) -> Op {
        const AMOUNTS: [u64; 6] = [1, 1, 2, 12, 20, 39];
        let n = AMOUNTS[model::choose(AMOUNTS.len())];
        let dead = self.history.dead();
        match model::choose(10) {
            0..=3 => Op::Acquire(self.id, n, Ok(()), dead),
            4 => Op::Instant((0, 0), dead),
            5 if self.may == May::SetLimit => Op::SetLimit([10, LIMIT, 50][model::choose(3)]),
            5 if self.may == May::Close => Op::Close,
            _ => Op::Release(self.id, n.min(held)),
        }
    }

    fn call(&self, planned: Op) -> Op {
        let (budgets, me) = (self.budgets, self.me);
        let began = model::tick();
        *self.pending.lock().expect("no panic") = Some((began, planned));
        let mut done = planned;
        match &mut done {
            Op::Acquire(_, n, result, _) => *result = budgets.try_acquire(0, me, *n),
            Op::Instant(seen, _) => *seen = budgets.instant(0, me),
            Op::SetLimit(limit) => budgets.set_limit(0, *limit),
            Op::Close => budgets.close(0),
            Op::Release(_, n) if model::choose(2) == 0 => budgets.release(0, me, *n),
            Op::Release(_, n) => budgets.release_at_once(0, me, *n),
            Op::Reclaim(_) => unreachable!("no process plans that"),
        }
        *self.pending.lock().expect("no panic") = None;
        self.history.push(began, done);
        done
    }

    /// Records that this process was killed.
    fn die(&self) {
        let pending = self.pending.lock().expect("no panic").take();
        let died = model::tick();
        if let Some((began, op)) = pending.filter(|(_, op)| !matches!(op, Op::Instant(..))) {
            let call = Call { began, ended: died, op };
            self.history.cut.lock().expect("no panic").push(call);
        }
        self.budgets.end(self.me);
        self.history.push_death(self.id, died);
    }
}

/// Runs processes in one slot, one after the other; all but the last may be killed.
fn processes(budgets: &'static Budgets, slot: usize, deaths: usize, may: May, history: &History) {
    for life in 0..=deaths {
        // The slot is free only when another process has reclaimed it.
        let Some(me) = budgets.try_attach(slot as u32) else { return };
        let id = slot * LIVES + life;
        let worker = Worker { budgets, me, id, may, history, pending: Mutex::new(None) };
        let steps = if life < deaths { model::choose(80) } else { usize::MAX };
        match model::killed_after(steps, || worker.run()) {
            None => worker.die(),
            Some(()) => return,
        }
    }
}

fn random_ops(deaths: usize, may: May) {
    // Leaked, because no other budget may have this address in the same execution.
    let budgets: &Budgets = Box::leak(Box::new(Budgets::new()));
    let history = Arc::new(History::default());
    let last = budgets.attach(MORTAL as u32);
    let shared = history.clone();
    on_threads(MORTAL, 2, move |slot| processes(budgets, slot, deaths, may, &shared));
    let began = model::tick();
    let dead = history.dead();
    history.push(began, Op::Instant(budgets.instant(0, last), dead));
    history.assert_linearizable();
}

// The threads of a process use the same pairs.
#[test]
fn random_ops_of_threads_are_linearizable() {
    in_random_orders_on(&[MACHINE], 10_000, |_| {
        let budgets: &Budgets = Box::leak(Box::new(Budgets::new()));
        let history = Arc::new(History::default());
        let processes = [0, 1].map(|slot| budgets.attach(slot));
        let shared = history.clone();
        on_threads(4, 2, move |id| {
            let (me, history, pending) = (processes[id / 2], &*shared, Mutex::new(None));
            Worker { budgets, me, id, may: May::Nothing, history, pending }.run();
        });
        history.assert_linearizable();
    });
}

#[test]
fn random_ops_are_linearizable() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_ops(0, May::Nothing));
}

#[test]
fn random_ops_are_linearizable_with_deaths() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_ops(1, May::Nothing));
}

#[test]
fn random_ops_are_linearizable_with_limit_changes_and_deaths() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_ops(1, May::SetLimit));
}

#[test]
fn random_ops_are_linearizable_with_close_and_deaths() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_ops(1, May::Close));
}
