//! Images of segments at each instruction of a process that another one steps through.
//!
//! Each image has the bytes that a kill would leave. In `segment_kills` and `segment_budget_kills`
//! a handler takes such images, which needs x86-64. Here a tracer takes them, on each architecture.
//! That is slower, so there are fewer operations.

use std::time::Duration;

use thiscpu::{Segment, SharedBudget};

use super::segment_budget_kills::assert_recovers;
use super::segment_kills::{assert_usable, counter, group, images_while};
use super::segment_participants::{LIMIT, budget};
use crate::common::segment::{file_of, smallest};
use crate::common::{DEFAULT_ONLY, Scenario, fork, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_traced::killed_adds_and_sums_have_happened_or_not, DEFAULT_ONLY)
        .needs(fork::can_step_children)
        .not_quick(),
    scenario!(segment_traced::killed_makers_leave_the_name_free, DEFAULT_ONLY)
        .needs(fork::can_step_children)
        .not_quick(),
    scenario!(segment_traced::killed_calls_of_budgets_return_everything, DEFAULT_ONLY)
        .needs(fork::can_step_children)
        .slow(),
    scenario!(segment_traced::killed_joins_and_leaves_return_everything, DEFAULT_ONLY)
        .needs(fork::can_step_children)
        .slow(),
];

/// Returns a segment with few participants, so that each call looks at few waiters.
fn small_segment() -> Segment {
    smallest().participants(8).anonymous().expect("a segment")
}

/// Returns the images of a segment while a child runs `op`, after `prepare`.
fn images_of<T>(
    segment: &Segment,
    prepare: impl FnOnce() -> T,
    op: impl FnOnce(T),
) -> Vec<Vec<u8>> {
    images_while(segment, |record| fork::step_child(prepare, op, record))
}

fn killed_adds_and_sums_have_happened_or_not() {
    for sums in 0..3 {
        let segment = small_segment();
        let counter = counter(&segment);
        group(&segment);
        counter.add(1000);
        for n in [1, -7, 1 << 20, 0] {
            (0..sums).for_each(|_| _ = counter.sum());
            // A part of the value is in the bank that is open.
            let before = counter.sum() + 5;
            let op = |()| match n {
                0 => assert_eq!(counter.sum(), before),
                n => counter.add(n),
            };
            let images = images_of(&segment, || counter.add(5), op);
            assert!(images.len() >= 3, "no image of an add of {n}");
            // The first one is from before the child's first addition.
            for image in &images[1..] {
                assert_usable(image, &[before, before + n], &format!("add of {n}"));
            }
            assert_usable(&images[images.len() - 1], &[before + n], "the end of an add");
        }
    }
}

fn killed_makers_leave_the_name_free() {
    let segment = small_segment();
    counter(&segment).add(1000);
    let make = |()| segment.counters::<3>("group").expect("room").add(1, 6);
    let images = images_of(&segment, || (), make);
    assert!(images.len() >= 6, "{} images of a new name", images.len());
    for image in images {
        assert_usable(&image, &[1000], "a new name");
    }
}

/// The units that this process holds, which stays alive.
const OWN: u64 = 10;

/// Returns a segment in which this process has slot 0, and holds units.
fn used_segment() -> Segment {
    let segment = small_segment();
    budget(&segment).try_acquire(OWN).expect("units are available");
    segment
}

/// Attaches to a segment and joins it, with 20 units.
fn join(segment: &Segment) -> (Segment, SharedBudget) {
    let attached = Segment::from_fd(file_of(segment).into()).expect("a segment");
    let budget = budget(&attached);
    budget.try_acquire(20).expect("units are available");
    (attached, budget)
}

fn killed_calls_of_budgets_return_everything() {
    type Call = fn(&SharedBudget);
    // A name, whether a recall comes first, and the call.
    let calls: [(&str, bool, Call); 7] = [
        ("acquire of 1", false, |budget| _ = budget.try_acquire(1)),
        ("acquire of 30", true, |budget| _ = budget.try_acquire(30)),
        ("refusal", false, |budget| _ = budget.try_acquire(LIMIT)),
        ("release of 1", false, |budget| budget.release(1)),
        ("release of 20", true, |budget| budget.release(20)),
        ("wait", true, |budget| _ = budget.acquire_timeout(LIMIT, Duration::ZERO)),
        ("raised limit", true, |budget| budget.set_limit(2 * LIMIT)),
    ];
    // Refusals and waits take very many steps.
    let is_brief = |what: &str| !["refusal", "wait"].contains(&what);
    let chosen = calls.into_iter().filter(|it| scale::factor() == 1 || is_brief(it.0));
    for (what, is_recalled, call) in chosen {
        let segment = used_segment();
        let prepare = || {
            let joined = join(&segment);
            if is_recalled {
                joined.1.available();
            }
            joined
        };
        let images = images_of(&segment, prepare, |joined| {
            call(&joined.1);
            // Detaching has a scenario of its own.
            std::mem::forget(joined);
        });
        assert!(images.len() >= 2, "no image of a {what}");
        // The child, which is dead by now, is in slot 1.
        images.iter().for_each(|image| assert_recovers(image, &[], OWN, what));
    }
}

fn killed_joins_and_leaves_return_everything() {
    let segment = used_segment();
    let attach = || Segment::from_fd(file_of(&segment).into()).expect("a segment");
    let joins = images_of(&segment, attach, |attached| {
        let budget = budget(&attached);
        budget.try_acquire(5).expect("units are available");
        std::mem::forget((attached, budget));
    });
    assert!(joins.len() >= 4, "{} images of a join", joins.len());
    let leaves = images_of(&segment, || join(&segment), drop);
    assert!(leaves.len() >= 3, "{} images of a leave", leaves.len());
    for (image, what) in
        joins.iter().map(|image| (image, "join")).chain(leaves.iter().map(|it| (it, "leave")))
    {
        assert_recovers(image, &[], OWN, what);
    }
}
