//! Every copy of every section, at every point, under every conflict.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::copies;
use crate::cpus::Cpus;
use crate::memory::Memory;
use crate::point::PointKind;
use crate::report::Report;
use crate::run_case::{Case, Context, Outcome};
use crate::subjects;
use crate::trap::{self, Target};

/// The points of each copy at which an operation was stopped.
type Driven = BTreeMap<usize, BTreeSet<usize>>;

/// Drives the copies of one section, or of all whose names contain `filter`.
pub(crate) fn run(memory: Memory, cpus: Cpus, filter: &str) -> Result<Report> {
    trap::install()?;
    let context = Context { copies: copies::all()?, memory, cpus };
    let is_exact = context.copies.iter().any(|copy| copy.name == filter);
    let wanted = |copy: usize| {
        let name = &context.copies[copy].name;
        if is_exact { name == filter } else { name.contains(filter) }
    };
    ensure!(
        (0..context.copies.len()).any(wanted),
        "no section has a name that contains `{filter}`; --list prints the names"
    );
    let mut report = Report::default();
    let mut driven = Driven::new();
    drive_all(&context, &wanted, &mut driven, &mut report);
    #[cfg(feature = "c")]
    {
        // The copies that are not driven yet are those of C.
        crate::inlined::enable();
        let rust = driven.clone();
        let wanted = |copy: usize| wanted(copy) && !rust.contains_key(&copy);
        drive_all(&context, &wanted, &mut driven, &mut report);
    }
    for (at, copy) in context.copies.iter().enumerate().filter(|&(at, _)| wanted(at)) {
        report.add_copy(copy);
        let address = copy.abort;
        let missed = match driven.get(&at) {
            None => Some("no subject drives the copy".to_owned()),
            Some(reached) => (0..copy.points.len())
                .find(|point| !reached.contains(point))
                .map(|point| format!("no subject reaches point {point} of the copy")),
        };
        if let Some(missed) = missed {
            let failure = format!(
                "{missed} with the abort handler at {address:#x}; \
                 add a subject whose operation executes it"
            );
            report.fail(&copy.name, failure);
        }
    }
    Ok(report)
}

fn drive_all(
    context: &Context,
    wanted: &dyn Fn(usize) -> bool,
    driven: &mut Driven,
    report: &mut Report,
) {
    for case in subjects::all() {
        let path = case.explore(context);
        let wanted = |copy: usize| wanted(copy) && case.drives(&context.copies[copy].name);
        for (at, &copy) in path.iter().enumerate().filter(|&(_, &copy)| wanted(copy)) {
            let reached = drive(context, &case, &path, at, report);
            driven.entry(copy).or_default().extend(reached);
        }
    }
}

/// Drives one copy at all points that the operation reaches, and returns those points.
fn drive(
    context: &Context,
    case: &Case,
    path: &[usize],
    at: usize,
    report: &mut Report,
) -> BTreeSet<usize> {
    let copy = &context.copies[path[at]];
    let mut reached = BTreeSet::new();
    for (number, &point) in copy.points.iter().enumerate() {
        if !case.reaches(context, Target { path, at, point }) {
            continue;
        }
        reached.insert(number);
        for &conflict in case.conflicts.iter().filter(|&&c| case.applies(point, c)) {
            report.add_run(&copy.name);
            let target = Target { path, at, point };
            if let Outcome::Failed(mismatch) = case.run(context, target, conflict) {
                let [on, op] = case.name;
                let place = match point.kind {
                    PointKind::Before => "before its range",
                    PointKind::Inside => "in its range",
                    PointKind::After => "after its range",
                };
                let failure = format!(
                    "{on} {op}: stopped {place}, at {:#x}, point {number} of {}, \
                     with {}: {mismatch}",
                    point.address,
                    copy.points.len(),
                    conflict.description(),
                );
                report.fail(&copy.name, failure);
            }
        }
    }
    reached
}
