//! One run: an operation that is stopped at one point while one conflict happens.

use std::cell::{Cell, RefCell};

use thiscpu::{__test_support, VforkScope, vfork_scope};

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
pub(crate) struct Case {
    /// The structure, and the operation on it.
    pub(crate) name: [&'static str; 2],
    pub(crate) conflicts: &'static [Conflict],
    /// The section that the case exists to drive; all sections if there is none.
    ///
    /// The operation must execute the section as a whole, and not be refused in the middle of it.
    pub(crate) section: Option<&'static str>,
    /// Whether the operation has happened when the stopped section has committed.
    pub(crate) commit_is_op: bool,
    /// Whether [`Subject::check_between`] runs when the operation tries again.
    pub(crate) checks_between: bool,
    pub(crate) subjects: Box<dyn Drive>,
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
    /// Creates a case of all sections, whose commits are the operation.
    ///
    /// `new` returns a subject for each run.
    pub(crate) fn new<S: Subject>(
        name: [&'static str; 2],
        conflicts: &'static [Conflict],
        new: impl Fn() -> S + Sync + 'static,
    ) -> Case {
        let subjects = Box::new(new);
        let (commit_is_op, checks_between) = (true, false);
        Case { name, conflicts, section: None, commit_is_op, checks_between, subjects }
    }

    pub(crate) fn drives(&self, section: &str) -> bool {
        self.section.is_none_or(|own| own == section)
    }

    /// Returns the copies that the operation executes if each is aborted once.
    pub(crate) fn explore(&self, context: &Context) -> Vec<usize> {
        self.subjects.stopped(context, Plan::Explore).0
    }

    /// Returns whether the operation reaches a point; it passes by points in other branches.
    pub(crate) fn reaches(&self, context: &Context, target: Target<'_>) -> bool {
        (0..TRIES).any(|_| self.subjects.stopped(context, Plan::Once(target)).1)
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
                let run = threads.spawn(|| self.subjects.run(self, context, target, conflict));
                run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
            _ => self.subjects.run(self, context, target, conflict),
        };
        let ended = (0..TRIES).map(|_| attempt()).find(|run| *run != Outcome::Disturbed);
        ended.unwrap_or_else(|| Outcome::Failed(format!("all of {TRIES} runs were disturbed")))
    }
}

/// Runs with subjects of some type, one for each run.
pub(crate) trait Drive: Sync {
    /// Runs the operation without a conflict.
    ///
    /// Returns the copies that were aborted at their start, and whether the point was reached.
    fn stopped(&self, context: &Context, plan: Plan<'_>) -> (Vec<usize>, bool);

    fn run(
        &self,
        case: &Case,
        context: &Context,
        target: Target<'_>,
        conflict: Conflict,
    ) -> Outcome;
}

impl<S: Subject, N: Fn() -> S + Sync> Drive for N {
    fn stopped(&self, context: &Context, plan: Plan<'_>) -> (Vec<usize>, bool) {
        let subject = self();
        let trap = Trap::new(&context.memory, &context.copies, plan, &|| ());
        trap.around(|| subject.op());
        (trap.passed.take(), trap.hit.get())
    }

    fn run(
        &self,
        case: &Case,
        context: &Context,
        target: Target<'_>,
        conflict: Conflict,
    ) -> Outcome {
        run(case, self(), context, target, conflict)
    }
}

/// Runs the operation. If its section is always aborted, it must complete on the shared lane.
fn run(
    case: &Case,
    mut subject: impl Subject,
    context: &Context,
    target: Target<'_>,
    conflict: Conflict,
) -> Outcome {
    let point = target.point;
    let first_lane = lane::current();
    let (expected, last_lane) = (Cell::new(None), Cell::new(0));
    let conflicted = RefCell::new(Ok(()));
    // A scope that begins in the conflict lasts until the run ends.
    let scope = RefCell::new(None);
    let watch = SwitchWatch::new();
    let meanwhile = || {
        // After its commit the operation has happened, and the conflict comes on top of it.
        if point.kind == PointKind::After && case.commit_is_op {
            expected.set(Some(subject.apply(first_lane, false)));
        }
        watch.except(|| {
            *conflicted.borrow_mut() = cause(&subject, context, conflict, &scope);
            last_lane.set(lane::current());
        });
    };
    let is_always = conflict == Conflict::Always;
    let plan = if is_always { Plan::Always(target) } else { Plan::Once(target) };
    let check_between = || {
        let checked = subject.check_between();
        let mut conflicted = conflicted.borrow_mut();
        *conflicted = std::mem::replace(&mut *conflicted, Ok(())).and(checked);
    };
    let trap = Trap::new(&context.memory, &context.copies, plan, &meanwhile);
    // The sections of a thread without a lane are not aborted.
    let has_lane = !matches!(conflict, Conflict::Leave | Conflict::Vfork);
    let checks = case.checks_between && !is_always && has_lane;
    let trap = if checks { trap.with_check(&check_between) } else { trap };
    let answer = trap.around(|| subject.op());
    let switched = watch.switched();
    let (hit, mismatch) = (trap.hit.get(), trap.mismatch.into_inner());
    let drifted = !is_always && (lane::current() != last_lane.get() || lane::drifted());
    if let Some(mismatch) = mismatch {
        return Outcome::Failed(mismatch);
    }
    if !hit || drifted {
        return Outcome::Disturbed;
    }
    let aborted = point.kind == PointKind::Inside;
    let lane = match is_always || aborted && target.passes().len() + 1 == ABORTS_MAX {
        true => SHARED_LANE,
        false => last_lane.get(),
    };
    let expected = expected.take().unwrap_or_else(|| subject.apply(lane, aborted));
    let result = conflicted.into_inner().and_then(|()| expect("its answer", &answer, &expected));
    outcome(result.and_then(|()| subject.check()), switched)
}

/// Causes the conflict, in the handler of the breakpoint.
fn cause(
    subject: &impl Subject,
    context: &Context,
    conflict: Conflict,
    scope: &RefCell<Option<VforkScope>>,
) -> Result<(), Mismatch> {
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
        Conflict::Vfork => {
            subject.conflict_here()?;
            *scope.borrow_mut() = Some(vfork_scope());
            subject.conflict_here()
        }
        Conflict::Flip | Conflict::Close | Conflict::Take => subject.use_gate(conflict),
        Conflict::Always => Ok(()),
    }
}

/// Returns the outcome of a run. A failure in a run whose thread lost its CPU proves nothing.
fn outcome(result: Result<(), Mismatch>, switched: bool) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed,
        Err(_) if switched => Outcome::Disturbed,
        Err(mismatch) => Outcome::Failed(mismatch),
    }
}
