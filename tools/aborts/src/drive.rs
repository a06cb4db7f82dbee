//! One run: an op that is stopped at one point while one thing conflicts.

use std::cell::{Cell, RefCell};

use thiscpu::__test_support;

use crate::copies::Inlined;
use crate::cpus::{Cpus, Watch};
use crate::lane;
use crate::memory::Memory;
use crate::point::{Place, Point};
use crate::subject::{Conflict, Subject, Wrong, expect};
use crate::trap::{Plan, Target, Trap};

/// What runs need.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) copies: Vec<Inlined>,
    pub(crate) cpus: Cpus,
}

/// An op that can be driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// What the op is on, and the op.
    pub(crate) name: [&'static str; 2],
    pub(crate) conflicts: &'static [Conflict],
    /// Whether it is there to drive that section.
    pub(crate) drives: fn(&str) -> bool,
    /// Which copies it passes when each is aborted once.
    pub(crate) explore: fn(&World) -> Vec<usize>,
    /// Whether it comes to a point: those of the other branch it passes by.
    pub(crate) comes_to: fn(&World, Target<'_>) -> bool,
    run: fn(&World, Target<'_>, Conflict) -> Run,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// The op happened exactly once, on top of what conflicted.
    Fine,
    /// It did not come to the point, or came to another lane by itself: the kernel interrupted it at a
    /// moment of its own. Nothing is learned.
    Disturbed,
    Wrong(Wrong),
}

/// How often a run that was disturbed is tried again.
const TRIES: u32 = 100;

/// How often an op on this CPU's lane is aborted before it turns to the slow lane: once, and then as
/// often as its slow path tries.
const ABORTS_MAX: usize = 1 + 8;

const SLOW_LANE: usize = 0;

impl Case {
    pub(crate) fn of<S: Subject>(on: &'static str, op: &'static str) -> Case {
        Case {
            name: [on, op],
            conflicts: S::CONFLICTS,
            drives: S::drives,
            explore: |world| explore::<S>(world),
            comes_to: comes_to::<S>,
            run: run::<S>,
        }
    }

    /// Whether `conflict` can happen at that point.
    pub(crate) fn applies(&self, point: Point, conflict: Conflict) -> bool {
        self.conflicts.contains(&conflict)
            && (conflict != Conflict::Always || point.place == Place::Inside)
    }

    pub(crate) fn run(&self, world: &World, target: Target<'_>, conflict: Conflict) -> Run {
        let attempt = || match conflict {
            // On a thread that ends with it.
            Conflict::Leave => std::thread::scope(|threads| {
                let run = threads.spawn(|| (self.run)(world, target, conflict));
                run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
            _ => (self.run)(world, target, conflict),
        };
        let ended = (0..TRIES).map(|_| attempt()).find(|run| *run != Run::Disturbed);
        ended.unwrap_or_else(|| {
            Run::Wrong(format!("it never came there undisturbed, in {TRIES} runs"))
        })
    }
}

fn explore<S: Subject>(world: &World) -> Vec<usize> {
    let subject = S::new();
    let trap = Trap::new(&world.memory, &world.copies, Plan::Explore, &|| ());
    trap.around(|| subject.op());
    trap.passed.into_inner()
}

fn comes_to<S: Subject>(world: &World, target: Target<'_>) -> bool {
    (0..TRIES).any(|_| {
        let subject = S::new();
        let trap = Trap::new(&world.memory, &world.copies, Plan::Once(target), &|| ());
        trap.around(|| subject.op());
        trap.hit.get()
    })
}

fn run<S: Subject>(world: &World, target: Target<'_>, conflict: Conflict) -> Run {
    if conflict == Conflict::Always {
        return always::<S>(world, target);
    }
    let mut subject = S::new();
    let point = target.point;
    let began_on = lane::here();
    let (expected, lane_then) = (Cell::new(None), Cell::new(0));
    let conflicted = RefCell::new(Ok(()));
    let watch = Watch::new();
    let meanwhile = || {
        // After its commit the op has happened, and what conflicts comes on top of it.
        if point.place == Place::After && S::COMMIT_IS_THE_OP {
            expected.set(Some(subject.book(began_on, false)));
        }
        watch.except(|| {
            *conflicted.borrow_mut() = happen(&subject, world, conflict);
            lane_then.set(lane::here());
        });
    };
    let plan = Plan::Once(target);
    let look = || {
        let seen = subject.look();
        let mut conflicted = conflicted.borrow_mut();
        *conflicted = std::mem::replace(&mut *conflicted, Ok(())).and(seen);
    };
    let trap = Trap::new(&world.memory, &world.copies, plan, &meanwhile);
    // A thread without a registration is not aborted.
    let looks = S::LOOKS_BETWEEN && conflict != Conflict::Leave;
    let trap = if looks { trap.looking(&look) } else { trap };
    let answer = trap.around(|| subject.op());
    let lost = watch.lost();
    let (hit, wrong) = (trap.hit.get(), trap.wrong.into_inner());
    let drifted = lane::here() != lane_then.get() || lane::drifted();
    if let Some(wrong) = wrong {
        return Run::Wrong(wrong);
    }
    if !hit || drifted {
        return Run::Disturbed;
    }
    let aborted = point.place == Place::Inside;
    let lane = match aborted && target.passes().len() + 1 == ABORTS_MAX {
        true => SLOW_LANE,
        false => lane_then.get(),
    };
    let expected = expected.take().unwrap_or_else(|| subject.book(lane, aborted));
    let result = conflicted.into_inner().and_then(|()| expect("it answered", &answer, &expected));
    ended(result.and_then(|()| subject.check()), lost)
}

/// What conflicts, in the handler.
fn happen<S: Subject>(subject: &S, world: &World, conflict: Conflict) -> Result<(), Wrong> {
    match conflict {
        Conflict::SameLane => subject.meddle(),
        Conflict::Move => {
            subject.meddle()?;
            if !world.cpus.move_on() {
                return Err("a CPU cannot be used any more".to_owned());
            }
            subject.meddle()
        }
        Conflict::Leave => {
            subject.meddle()?;
            __test_support::leave_lanes();
            subject.meddle()
        }
        Conflict::Flip | Conflict::Close | Conflict::Take => subject.turn_gate(conflict),
        Conflict::Always => Ok(()),
    }
}

/// A section that is aborted each time it is tried: the op must end, on the slow lane.
fn always<S: Subject>(world: &World, target: Target<'_>) -> Run {
    let mut subject = S::new();
    let trap = Trap::new(&world.memory, &world.copies, Plan::Always(target), &|| ());
    let watch = Watch::new();
    let answer = trap.around(|| subject.op());
    let lost = watch.lost();
    if let Some(wrong) = trap.wrong.into_inner() {
        return Run::Wrong(wrong);
    }
    if !trap.hit.get() {
        return Run::Disturbed;
    }
    let expected = subject.book(SLOW_LANE, true);
    ended(expect("it answered", &answer, &expected).and_then(|()| subject.check()), lost)
}

/// A run in which the thread lost its CPU proves nothing by failing.
fn ended(result: Result<(), Wrong>, lost_its_cpu: bool) -> Run {
    match result {
        Ok(()) => Run::Fine,
        Err(_) if lost_its_cpu => Run::Disturbed,
        Err(wrong) => Run::Wrong(wrong),
    }
}
