//! From what was asked for to the cases that will run, or to a reason why nothing will.

use std::time::Duration;

use crate::{case::Case, contenders::Name, kind::Kind, workloads::Workload};

/// Seconds a slice when nobody says otherwise; with [`DEFAULT_ROUNDS`] everything takes little more
/// than a minute.
pub(crate) const DEFAULT_SECONDS: f64 = 0.05;

/// Rounds when nobody says otherwise.
pub(crate) const DEFAULT_ROUNDS: u32 = 7;

/// The most threads that can be asked for.
pub(crate) const THREADS_MAX: usize = 4096;

/// The longest slice that can be asked for.
pub(crate) const SECONDS_MAX: f64 = 3600.0;

/// Sums of each contender in the rounds of case `token` together.
const SUMS_MIN: u64 = 100_000;

/// What was asked for. An empty list, or no value, means the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Which workloads; all by default.
    pub(crate) workloads: Vec<Workload>,
    /// Which cases of these, by their names; all by default.
    pub(crate) cases: Vec<String>,
    /// Which contenders; by default all that this machine can run.
    pub(crate) contenders: Vec<Name>,
    /// With how many threads; each workload has its own default.
    pub(crate) threads: Vec<usize>,
    /// How long a slice lasts.
    pub(crate) seconds: Option<f64>,
    /// How often everything is measured.
    pub(crate) rounds: Option<u32>,
    /// How many calls of each contender are audited at least, in each case that does so.
    pub(crate) audited_min: u64,
}

/// Everything that will be measured.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The cases, in order.
    pub(crate) cases: Vec<Case>,
    /// Who cannot take part on this machine, and why.
    pub(crate) unavailable: Vec<String>,
    /// How long a slice lasts.
    pub(crate) seconds: f64,
    /// How often everything is measured.
    pub(crate) rounds: u32,
}

impl Plan {
    /// Works out what `options` ask for.
    ///
    /// # Errors
    ///
    /// When a contender that was named is unavailable, no workload has a case that was named, or nobody is
    /// left to run a workload that was named.
    pub(crate) fn new(options: &Options) -> Result<Self, String> {
        let kinds = of_cases(kinds_of(&options.workloads), &options.cases)?;
        let wanted: Vec<Workload> = kinds.iter().map(|kind| kind.workload()).collect();
        let (contenders, unavailable) = who_can_run(&options.contenders, &kinds)?;
        let seconds = options.seconds.unwrap_or(DEFAULT_SECONDS);
        let rounds = options.rounds.unwrap_or(DEFAULT_ROUNDS);
        // A run with slices shorter than the default only tries whether everything works.
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
                rounds: kind.rounds(rounds),
                length: Duration::from_secs_f64(seconds),
                sums_min: if is_trial { 0 } else { SUMS_MIN.div_ceil(u64::from(rounds)) },
                audited_min: options.audited_min.div_ceil(u64::from(rounds)),
                is_trial,
            };
            let threads = kind.threads(&without_repeats(&options.threads));
            cases.extend(threads.into_iter().map(case));
        }
        let runs = |workload| cases.iter().any(|case| case.kind.workload() == workload);
        let measures_memory = |workload: &&Workload| wanted.contains(workload) && !runs(**workload);
        if let Some(&idle) = options.workloads.iter().find(measures_memory) {
            return Err(nobody_runs(idle));
        }
        Ok(Self { cases, unavailable, seconds, rounds })
    }
}

/// Why none of the contenders that were named can run any case of `workload`.
fn nobody_runs(workload: Workload) -> String {
    let kinds = kinds_of(&[workload]);
    let takes_part = |name: &Name| kinds.iter().any(|kind| kind.has(*name));
    let names: Vec<_> =
        Name::ALL.iter().filter(|name| takes_part(name)).map(|name| name.as_str()).collect();
    format!("only {} can run the workload {workload}", names.join(", "))
}

/// Those of `asked` that can be run, and why others of those that take part in `kinds` cannot. Nobody named may be
/// missing; of all, some may.
fn who_can_run(asked: &[Name], kinds: &[Kind]) -> Result<(Vec<Name>, Vec<String>), String> {
    let everyone = if asked.is_empty() { &Name::ALL } else { asked };
    let (mut names, mut unavailable) = (Vec::new(), Vec::new());
    for name in without_repeats(everyone) {
        match name.available() {
            Ok(()) => names.push(name),
            Err(why) if !asked.is_empty() => return Err(format!("{why:#}")),
            Err(why) if kinds.iter().any(|kind| kind.has(name)) => {
                unavailable.push(format!("{why:#}"));
                unavailable.dedup();
            }
            Err(_) => {}
        }
    }
    Ok((names, unavailable))
}

/// The kinds of the workloads `asked` for, in that order; of all workloads, those for which there is time.
fn kinds_of(asked: &[Workload]) -> Vec<Kind> {
    let kinds_of = |workload| Kind::all().filter(move |kind| kind.workload() == workload);
    if asked.is_empty() {
        Workload::ALL.into_iter().flat_map(kinds_of).filter(|kind| kind.runs_by_default()).collect()
    } else {
        without_repeats(asked).into_iter().flat_map(kinds_of).collect()
    }
}

/// Those of `kinds` whose names were asked for, each of which at least one has; all if none was.
fn of_cases(kinds: Vec<Kind>, asked: &[String]) -> Result<Vec<Kind>, String> {
    let has = |name: &&String| kinds.iter().any(|kind| kind.case_name() == name.as_str());
    if let Some(unknown) = asked.iter().find(|name| !has(name)) {
        let names: Vec<_> = kinds.iter().map(|kind| kind.case_name()).collect();
        let names: Vec<_> =
            without_repeats(&names).into_iter().filter(|name| !name.is_empty()).collect();
        return Err(format!("no case is called {unknown:?}; there are {}", names.join(", ")));
    }
    let is_asked =
        |kind: &Kind| asked.is_empty() || asked.iter().any(|name| name == kind.case_name());
    Ok(kinds.into_iter().filter(is_asked).collect())
}

/// Each item once, where it was first.
fn without_repeats<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut once = Vec::with_capacity(items.len());
    for item in items {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

/// Reads a number of threads.
///
/// # Errors
///
/// When it is not a whole number from 1 to [`THREADS_MAX`].
pub(crate) fn parse_threads(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("want a whole number from 1 to {THREADS_MAX}")),
    }
}

/// Reads the length of a slice.
///
/// # Errors
///
/// When it is not a positive number up to [`SECONDS_MAX`], or shorter than a nanosecond.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(seconds) if (1e-9..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("want a number of seconds greater than 0, at most {SECONDS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_runs_if_its_workload_is_named_and_most_by_default() {
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
            assert!(plan.cases.iter().any(is_of_it), "{workload}");
        }
        let sums = |case: &Case| case.sums_min * u64::from(case.rounds);
        let token = plan.cases.iter().find(|case| case.kind == Kind::Token);
        assert!(token.is_some_and(|case| sums(case) >= SUMS_MIN));
    }

    #[test]
    fn what_is_asked_for_twice_runs_once() {
        let plan = Plan::new(&Options {
            workloads: vec![Workload::Add, Workload::Add],
            contenders: vec![Name::Atomic, Name::Atomic],
            threads: vec![3, 1, 3],
            ..Options::default()
        })
        .unwrap();
        let threads: Vec<_> = plan.cases.iter().map(|case| case.threads).collect();
        assert_eq!(threads, [3, 1]);
        assert_eq!(plan.cases[0].contenders, [Name::Atomic]);
    }

    #[test]
    fn a_workload_without_contenders_is_refused_only_if_it_was_named() {
        let mut options = Options { contenders: vec![Name::Dumazet], ..Options::default() };
        let cases = Plan::new(&options).unwrap().cases;
        assert!(cases.iter().all(|case| case.kind != Kind::Memory));
        options.workloads = vec![Workload::Memory];
        let message = Plan::new(&options).unwrap_err();
        assert!(message.contains("atomic, striped, thiscpu"), "{message}");
        options = Options {
            workloads: vec![Workload::Commit],
            contenders: vec![Name::Semaphore],
            ..Options::default()
        };
        let message = Plan::new(&options).unwrap_err();
        assert!(message.contains("atomic, spinlock-fold"), "{message}");
        assert!(!message.contains("none"), "{message}");
    }

    #[test]
    fn cases_are_those_that_were_named() {
        let mut options = Options {
            workloads: vec![Workload::Alloc],
            cases: vec!["resident-64".to_owned(), "pair-8".to_owned()],
            ..Options::default()
        };
        let plan = Plan::new(&options).unwrap();
        let names: Vec<_> = plan.cases.iter().map(|case| case.kind.case_name()).collect();
        assert_eq!(names, ["pair-8", "pair-8", "resident-64"]);
        options.cases.push("pair-9".to_owned());
        let message = Plan::new(&options).unwrap_err();
        assert!(message.contains("\"pair-9\"; there are pair-8, pair-16"), "{message}");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for text in ["0", "-1", "4097", "1e3", "", "two"] {
            parse_threads(text).unwrap_err();
        }
        for text in ["0", "-0.5", "nan", "inf", "3601", "1e-12", "", "soon"] {
            parse_seconds(text).unwrap_err();
        }
        assert_eq!(parse_threads("4096"), Ok(4096));
        assert_eq!(parse_seconds("0.25"), Ok(0.25));
    }
}
