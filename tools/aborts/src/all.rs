//! Every copy of every section, at every point, under everything that conflicts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::copies;
use crate::cpus::Cpus;
use crate::drive::{Case, Run, World};
use crate::memory::Memory;
use crate::point::Place;
use crate::report::Report;
use crate::subjects;
use crate::trap::{self, Target};

/// Drives the copies of the sections whose names contain `filter`.
pub(crate) fn run(memory: Memory, cpus: Cpus, filter: &str) -> Result<Report> {
    trap::install()?;
    let world = World { copies: copies::all(&memory)?, memory, cpus };
    let wanted = |copy: usize| world.copies[copy].name.contains(filter);
    ensure!(
        (0..world.copies.len()).any(wanted),
        "no section is called `{filter}`; --list has their names"
    );
    let mut report = Report::default();
    let mut driven = Driven::new();
    drive_all(&world, &wanted, &mut driven, &mut report);
    #[cfg(feature = "c")]
    {
        // Once more, in C; what is not driven yet are its copies.
        crate::inlined::begin();
        let rust = driven.clone();
        let wanted = |copy: usize| wanted(copy) && !rust.contains_key(&copy);
        drive_all(&world, &wanted, &mut driven, &mut report);
    }
    for (at, copy) in world.copies.iter().enumerate().filter(|&(at, _)| wanted(at)) {
        report.copy(copy);
        let address = copy.abort;
        let missed = match driven.get(&at) {
            None => Some("nothing drives the copy".to_owned()),
            Some(reached) => (0..copy.points.len())
                .find(|point| !reached.contains(point))
                .map(|point| format!("nothing comes to point {point} of the copy")),
        };
        if let Some(missed) = missed {
            report.wrong(
                &copy.name,
                format!(
                    "{missed} whose abort handler is at {address:#x}: \
                     add a subject whose op comes through it"
                ),
            );
        }
    }
    Ok(report)
}

/// Drives the wanted copies by all cases.
fn drive_all(
    world: &World,
    wanted: &dyn Fn(usize) -> bool,
    driven: &mut Driven,
    report: &mut Report,
) {
    for case in subjects::all() {
        let path = (case.explore)(world);
        let wanted = |copy: usize| wanted(copy) && (case.drives)(&world.copies[copy].name);
        for (at, &copy) in path.iter().enumerate().filter(|&(_, &copy)| wanted(copy)) {
            let reached = drive(world, &case, &path, at, report);
            driven.entry(copy).or_default().extend(reached);
        }
    }
}

/// Which points of which copies some op was stopped at.
type Driven = BTreeMap<usize, BTreeSet<usize>>;

/// All points of one copy that the op comes to, with all that can conflict. Which points those are.
fn drive(
    world: &World,
    case: &Case,
    path: &[usize],
    at: usize,
    report: &mut Report,
) -> BTreeSet<usize> {
    let inlined = &world.copies[path[at]];
    let mut reached = BTreeSet::new();
    for (number, &point) in inlined.points.iter().enumerate() {
        if !(case.comes_to)(world, Target { path, at, point }) {
            continue;
        }
        reached.insert(number);
        for &conflict in case.conflicts.iter().filter(|&&c| case.applies(point, c)) {
            report.ran(&inlined.name);
            let target = Target { path, at, point };
            if let Run::Wrong(wrong) = case.run(world, target, conflict) {
                let [on, op] = case.name;
                let place = match point.place {
                    Place::Before => "before its range",
                    Place::Inside => "in its range",
                    Place::After => "after its range",
                };
                report.wrong(
                    &inlined.name,
                    format!(
                        "{on} {op}: stopped {place}, at {:#x}, point {number} of {}, with {}: {wrong}",
                        point.address,
                        inlined.points.len(),
                        conflict.words(),
                    ),
                );
            }
        }
    }
    reached
}
