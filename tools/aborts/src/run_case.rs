//! One run: an operation that is stopped at one point while one conflict happens.

use std::cell::{Cell, RefCell};

use thiscpu::__test_support;

use crate::copies::SectionCopy;
use crate::cpus::{Cpus, SwitchWatch};
use crate::lane;
use crate::memory::Memory;
use crate::point::{Point, PointKind};
use crate::subject::{Conflict, Mismatch, Subject, expect};
use crate::trap::{Plan, Target, Trap};

/// What all runs need.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) memory: Memory,
    pub(crate) copies: Vec<SectionCopy>,
    pub(crate) cpus: Cpus,
}

/// An operation that can be driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// The structure, and the operation on it.
    pub(crate) name: [&'static str; 2],
    pub(crate) conflicts: &'static [Conflict],
    /// Returns whether the case exists to drive a section.
    pub(crate) drives: fn(&str) -> bool,
    /// Returns the copies that the operation executes if each is aborted once.
    pub(crate) explore: fn(&Context) -> Vec<usize>,
    /// Returns whether the operation reaches a point; it passes by points in other branches.
    pub(crate) reaches: fn(&Context, Target<'_>) -> bool,
    run: fn(&Context, Target<'_>, Conflict) -> Outcome,
}

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The operation happened exactly once, on top of the conflict.
    Passed,
    /// The kernel interrupted the operation at another moment.
    ///
    /// The operation did not reach the point, or used another lane. The run proves nothing.
    Disturbed,
    Failed(Mismatch),
}

/// The number of attempts after disturbed runs.
const TRIES: u32 = 100;

/// The aborts after which an operation uses the shared lane: one, and those of its slow path.
const ABORTS_MAX: usize = 1 + 8;

const SHARED_LANE: usize = 0;

impl Case {
    pub(crate) fn of<S: Subject>(on: &'static str, op: &'static str) -> Case {
        Case {
            name: [on, op],
            conflicts: S::CONFLICTS,
            drives: S::drives,
            explore: |context| explore::<S>(context),
            reaches: reaches::<S>,
            run: run::<S>,
        }
    }

    /// Returns whether `conflict` can happen at a point.
    pub(crate) fn applies(&self, point: Point, conflict: Conflict) -> bool {
        self.conflicts.contains(&conflict)
            && (conflict != Conflict::Always || point.kind == PointKind::Inside)
    }

    /// Runs the operation, again if the run was disturbed.
    pub(crate) fn run(&self, context: &Context, target: Target<'_>, conflict: Conflict) -> Outcome {
        let attempt = || match conflict {
            // The thread loses its lane for good, so the run has a thread of its own.
            Conflict::Leave => std::thread::scope(|threads| {
                let run = threads.spawn(|| (self.run)(context, target, conflict));
                run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
            _ => (self.run)(context, target, conflict),
        };
        let ended = (0..TRIES).map(|_| attempt()).find(|run| *run != Outcome::Disturbed);
        ended.unwrap_or_else(|| Outcome::Failed(format!("all of {TRIES} runs were disturbed")))
    }
}

fn explore<S: Subject>(context: &Context) -> Vec<usize> {
    let subject = S::new();
    let trap = Trap::new(&context.memory, &context.copies, Plan::Explore, &|| ());
    trap.around(|| subject.op());
    trap.passed.into_inner()
}

fn reaches<S: Subject>(context: &Context, target: Target<'_>) -> bool {
    (0..TRIES).any(|_| {
        let subject = S::new();
        let trap = Trap::new(&context.memory, &context.copies, Plan::Once(target), &|| ());
        trap.around(|| subject.op());
        trap.hit.get()
    })
}

fn run<S: Subject>(context: &Context, target: Target<'_>, conflict: Conflict) -> Outcome {
    if conflict == Conflict::Always {
        return run_always_aborted::<S>(context, target);
    }
    let mut subject = S::new();
    let point = target.point;
    let first_lane = lane::current();
    let (expected, last_lane) = (Cell::new(None), Cell::new(0));
    let conflicted = RefCell::new(Ok(()));
    let watch = SwitchWatch::new();
    let meanwhile = || {
        // After its commit the operation has happened, and the conflict comes on top of it.
        if point.kind == PointKind::After && S::COMMIT_IS_OP {
            expected.set(Some(subject.apply(first_lane, false)));
        }
        watch.except(|| {
            *conflicted.borrow_mut() = cause(&subject, context, conflict);
            last_lane.set(lane::current());
        });
    };
    let plan = Plan::Once(target);
    let check_between = || {
        let checked = subject.check_between();
        let mut conflicted = conflicted.borrow_mut();
        *conflicted = std::mem::replace(&mut *conflicted, Ok(())).and(checked);
    };
    let trap = Trap::new(&context.memory, &context.copies, plan, &meanwhile);
    // The sections of an unregistered thread are not aborted.
    let checks = S::CHECKS_BETWEEN && conflict != Conflict::Leave;
    let trap = if checks { trap.with_check(&check_between) } else { trap };
    let answer = trap.around(|| subject.op());
    let switched = watch.switched();
    let (hit, mismatch) = (trap.hit.get(), trap.mismatch.into_inner());
    let drifted = lane::current() != last_lane.get() || lane::drifted();
    if let Some(mismatch) = mismatch {
        return Outcome::Failed(mismatch);
    }
    if !hit || drifted {
        return Outcome::Disturbed;
    }
    let aborted = point.kind == PointKind::Inside;
    let lane = match aborted && target.passes().len() + 1 == ABORTS_MAX {
        true => SHARED_LANE,
        false => last_lane.get(),
    };
    let expected = expected.take().unwrap_or_else(|| subject.apply(lane, aborted));
    let result = conflicted.into_inner().and_then(|()| expect("its answer", &answer, &expected));
    outcome(result.and_then(|()| subject.check()), switched)
}

/// Causes the conflict, in the handler of the breakpoint.
fn cause<S: Subject>(subject: &S, context: &Context, conflict: Conflict) -> Result<(), Mismatch> {
    match conflict {
        Conflict::SameLane => subject.conflict_here(),
        Conflict::Move => {
            subject.conflict_here()?;
            if !context.cpus.move_on() {
                return Err("a CPU has become unavailable".to_owned());
            }
            subject.conflict_here()
        }
        Conflict::Leave => {
            subject.conflict_here()?;
            __test_support::leave_lanes();
            subject.conflict_here()
        }
        Conflict::Flip | Conflict::Close | Conflict::Take => subject.use_gate(conflict),
        Conflict::Always => Ok(()),
    }
}

/// Runs an operation whose section is aborted each time: it must complete on the shared lane.
fn run_always_aborted<S: Subject>(context: &Context, target: Target<'_>) -> Outcome {
    let mut subject = S::new();
    let trap = Trap::new(&context.memory, &context.copies, Plan::Always(target), &|| ());
    let watch = SwitchWatch::new();
    let answer = trap.around(|| subject.op());
    let switched = watch.switched();
    if let Some(mismatch) = trap.mismatch.into_inner() {
        return Outcome::Failed(mismatch);
    }
    if !trap.hit.get() {
        return Outcome::Disturbed;
    }
    let expected = subject.apply(SHARED_LANE, true);
    outcome(expect("its answer", &answer, &expected).and_then(|()| subject.check()), switched)
}

/// Returns the outcome of a run. A failure in a run whose thread lost its CPU proves nothing.
fn outcome(result: Result<(), Mismatch>, switched: bool) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed,
        Err(_) if switched => Outcome::Disturbed,
        Err(mismatch) => Outcome::Failed(mismatch),
    }
}
