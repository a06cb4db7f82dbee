//! From options to the cases that will run, or to the reason why nothing will.

use std::{hash::Hash, time::Duration};

use indexmap::IndexSet;

use crate::{
    args::Options,
    case::Case,
    contenders::Name,
    kind::{DEFAULT_ROUNDS, Kind},
    progress::Progress,
    workloads::Workload,
};

/// The default length of a slice, in seconds. A full run takes about three minutes.
pub(crate) const DEFAULT_SECONDS: f64 = 0.05;

/// The length of a slice and the time for everything in a quick run.
const QUICK_SECONDS: f64 = 0.01;
const QUICK_TIME: Duration = Duration::from_secs(20);

/// Sums of each contender in all rounds of `sum token`.
const SUMS_MIN: u64 = 100_000;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<Case>,
    /// The reasons why contenders cannot run here.
    pub(crate) unavailable: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) rounds: u32,
    /// How often all cases are measured, one after the other.
    pub(crate) runs: u32,
    /// The time for all cases together; there are no more rounds than fit.
    pub(crate) time: Option<Duration>,
}

impl Plan {
    /// Works out what `options` ask for.
    ///
    /// It is an error if a named contender is unavailable, if no workload has a named case, or if
    /// no contender can run a named workload.
    pub(crate) fn new(options: &Options) -> Result<Self, String> {
        let mut kinds = of_cases(kinds_of(&options.workloads), &options.cases)?;
        kinds.retain(|kind| !options.quick || kind.runs_quickly());
        let wanted: Vec<Workload> = kinds.iter().map(|kind| kind.workload()).collect();
        let (contenders, unavailable) = available(&options.contenders, &kinds)?;
        let default = if options.quick { QUICK_SECONDS } else { DEFAULT_SECONDS };
        let seconds = options.seconds.unwrap_or(default);
        let rounds = options.rounds.unwrap_or(DEFAULT_ROUNDS);
        let runs = options.runs.unwrap_or(1);
        if runs > 1 && kinds.iter().any(|kind| kind.workload() != Workload::Walk) {
            return Err("--runs repeats the workload walk; name it, and no other".to_owned());
        }
        let is_trial = seconds < DEFAULT_SECONDS;
        let mut cases: Vec<Case> = Vec::new();
        for kind in kinds {
            let contenders = kind.contenders(&contenders);
            if contenders.is_empty() {
                continue;
            }
            let case = |threads| Case {
                kind,
                threads,
                contenders: contenders.clone(),
                rounds: kind.rounds(options.rounds),
                length: Duration::from_secs_f64(seconds),
                sums_min: if is_trial { 0 } else { SUMS_MIN.div_ceil(u64::from(rounds)) },
                audited_min: options.audited_min.div_ceil(u64::from(rounds)),
                is_trial,
            };
            let threads = kind.threads(&without_repeats(&options.threads));
            cases.extend(threads.into_iter().map(case));
        }
        let has = |workload| cases.iter().any(|case| case.kind.workload() == workload);
        let is_idle = |workload: &&Workload| wanted.contains(workload) && !has(**workload);
        if let Some(&idle) = options.workloads.iter().find(is_idle) {
            return Err(no_contender(idle));
        }
        let time = options.quick.then_some(QUICK_TIME);
        let rounds = cases.iter().map(|case| case.rounds).max().unwrap_or(rounds);
        Ok(Self { cases, unavailable, seconds, rounds, runs, time })
    }

    /// Returns all cases in the order in which they are measured, those of each run.
    pub(crate) fn all_cases(&self) -> impl ExactSizeIterator<Item = &Case> {
        let count = self.cases.len();
        (0..count * self.runs as usize).map(move |index| &self.cases[index % count])
    }

    pub(crate) fn progress(&self) -> Progress {
        let audited = self.all_cases().filter(|case| case.kind.is_audited());
        let audits = audited.map(Case::steps).sum();
        Progress::new(self.all_cases().map(Case::steps).sum(), audits)
    }
}

/// Says which contenders can run `workload`, for a request that has none of them.
fn no_contender(workload: Workload) -> String {
    let kinds = kinds_of(&[workload]);
    let can_run = |name: &Name| kinds.iter().any(|kind| kind.has(*name));
    let names: Vec<_> =
        Name::ALL.iter().filter(|name| can_run(name)).map(|name| name.as_str()).collect();
    format!("only {} can run the workload {workload}", names.join(", "))
}

/// Returns the available contenders, and why others that could run `kinds` are unavailable.
///
/// They are those of `requested`, which must all be available, or of all contenders.
fn available(requested: &[Name], kinds: &[Kind]) -> Result<(Vec<Name>, Vec<String>), String> {
    let all = if requested.is_empty() { &Name::ALL } else { requested };
    let (mut names, mut reasons) = (Vec::new(), Vec::new());
    for name in without_repeats(all) {
        match name.available() {
            Ok(()) => names.push(name),
            Err(why) if !requested.is_empty() => return Err(format!("{why:#}")),
            Err(why) if kinds.iter().any(|kind| kind.has(name)) => {
                reasons.push(format!("{why:#}"));
                reasons.dedup();
            }
            Err(_) => {}
        }
    }
    Ok((names, reasons))
}

/// Returns the kinds of the `requested` workloads, in order, or those that run by default.
fn kinds_of(requested: &[Workload]) -> Vec<Kind> {
    let kinds_of = |workload| Kind::all().filter(move |kind| kind.workload() == workload);
    if requested.is_empty() {
        Workload::ALL.into_iter().flat_map(kinds_of).filter(|kind| kind.runs_by_default()).collect()
    } else {
        without_repeats(requested).into_iter().flat_map(kinds_of).collect()
    }
}

/// Returns those of `kinds` with a requested name; all if no name was requested.
fn of_cases(kinds: Vec<Kind>, requested: &[String]) -> Result<Vec<Kind>, String> {
    let has = |name: &&String| kinds.iter().any(|kind| kind.case_name() == name.as_str());
    if let Some(unknown) = requested.iter().find(|name| !has(name)) {
        let known = kinds.iter().map(|kind| match kind.case_name() {
            "" => format!("{} (without a name)", kind.workload()),
            _ => kind.title(),
        });
        let known: Vec<_> = known.collect();
        return Err(format!("no case is named {unknown:?}; known are {}", known.join(", ")));
    }
    let is_requested =
        |kind: &Kind| requested.is_empty() || requested.iter().any(|name| name == kind.case_name());
    Ok(kinds.into_iter().filter(is_requested).collect())
}

/// Returns each item once, at its first position.
fn without_repeats<T: Copy + Eq + Hash>(items: &[T]) -> Vec<T> {
    items.iter().copied().collect::<IndexSet<T>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::walk;

    #[test]
    fn kinds_run_when_their_workload_is_named_and_most_by_default() {
        let plan = Plan::new(&Options::default()).unwrap();
        let named = Options { workloads: Workload::ALL.to_vec(), ..Options::default() };
        let plan_of_all = Plan::new(&named).unwrap();
        let runs = |plan: &Plan, kind| plan.cases.iter().any(|case| case.kind == kind);
        for kind in Kind::all() {
            assert!(runs(&plan_of_all, kind), "{kind:?}");
            assert_eq!(runs(&plan, kind), kind.runs_by_default(), "{kind:?}");
        }
        for workload in Workload::ALL {
            let is_of_it = |case: &Case| case.kind.workload() == workload;
            let runs = plan.cases.iter().any(is_of_it);
            let is_long = matches!(workload, Workload::Walk | Workload::Lifetime);
            assert!(runs || is_long, "{workload}");
        }
        let sums = |case: &Case| case.sums_min * u64::from(case.rounds);
        let token = plan.cases.iter().find(|case| case.kind == Kind::Token);
        assert!(token.is_some_and(|case| sums(case) >= SUMS_MIN));
    }

    #[test]
    fn repeated_requests_run_once() {
        let options = Options::of("add add --contender atomic,atomic --threads 3,1,3");
        let plan = Plan::new(&options).unwrap();
        let threads: Vec<_> = plan.cases.iter().map(|case| case.threads).collect();
        assert_eq!(threads, [3, 1]);
        assert_eq!(plan.cases[0].contenders, [Name::Atomic]);
    }

    #[test]
    fn quick_walk_has_all_orders_and_threads() {
        let plan = Plan::new(&Options::of("walk --quick")).unwrap();
        assert_eq!(plan.cases.len(), 2 * (4 * 4 + 3));
        let whole = Plan::new(&Options::of("walk")).unwrap();
        assert_eq!((whole.cases.len(), whole.rounds), (20 * (4 * 4 + 3), walk::ROUNDS));
        assert_eq!(Plan::new(&Options::of("walk add")).unwrap().rounds, DEFAULT_ROUNDS);
    }

    #[test]
    fn runs_follow_each_other_and_only_the_walk_has_them() {
        let plan = Plan::new(&Options::of("walk --case 8-lifo --threads 1,2 --runs 3")).unwrap();
        let threads: Vec<_> = plan.all_cases().map(|case| case.threads).collect();
        assert_eq!(threads, [1, 2, 1, 2, 1, 2]);
        for others in ["--runs 2", "walk add --runs 2"] {
            let message = Plan::new(&Options::of(others)).unwrap_err();
            assert!(message.contains("--runs repeats the workload walk"), "{message}");
        }
    }

    #[test]
    fn workload_without_contenders_is_refused_only_when_named() {
        let cases = Plan::new(&Options::of("--contender dumazet")).unwrap().cases;
        assert!(cases.iter().all(|case| case.kind != Kind::Memory));
        let message = Plan::new(&Options::of("memory --contender dumazet")).unwrap_err();
        assert!(message.contains("atomic, striped, thiscpu"), "{message}");
        let message = Plan::new(&Options::of("commit --contender semaphore")).unwrap_err();
        assert!(message.contains("atomic, spinlock-fold"), "{message}");
        assert!(!message.contains("none"), "{message}");
    }

    #[test]
    fn named_cases_run_and_unknown_ones_are_refused() {
        let plan = Plan::new(&Options::of("alloc --case resident-64,pair-8")).unwrap();
        let names: Vec<_> = plan.cases.iter().map(|case| case.kind.case_name()).collect();
        assert_eq!(names, ["pair-8", "pair-8", "resident-64"]);
        let message = Plan::new(&Options::of("alloc --case pair-8,pair-9")).unwrap_err();
        assert!(message.contains("\"pair-9\"; known are alloc pair-8, alloc pair-16"), "{message}");
    }
}
