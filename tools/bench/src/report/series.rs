//! The figures that plots show: by case, contender and number of threads.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};

use super::Deviation;
use crate::{contenders::Name, deviations::Class, figures::Row, kind::Kind, metric::Metric};

/// A case with all numbers of threads that it was measured with.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) kind: Kind,
    /// The numbers of threads, in the order in which they ran.
    pub(super) threads: Vec<usize>,
    /// The figures that its plot shows, if it has one.
    pub(super) drawn: Option<Drawn<'a>>,
    /// The distances of its sums; empty where they were not checked.
    pub(super) deviations: Vec<Deviations>,
}

#[derive(Debug)]
pub(super) struct Drawn<'a> {
    pub(super) metric: &'static Metric,
    /// The numbers of threads, in ascending order.
    pub(super) threads: Vec<usize>,
    /// The contenders that have figures, in the order in which they are shown.
    ///
    /// The figures of each are in ascending order of threads.
    pub(super) series: IndexMap<Name, Vec<&'a Row>>,
}

/// The distances of one contender's sums from a possible value.
#[derive(Clone, Debug)]
pub(super) struct Deviations {
    pub(super) contender: Name,
    /// In ascending order of their distances, with all numbers of threads added up.
    pub(super) classes: Vec<Class>,
}

impl Deviations {
    pub(super) fn sums(&self) -> u64 {
        self.classes.iter().map(|class| class.sums).sum()
    }

    /// Returns how many sums were no possible value.
    pub(super) fn wrong(&self) -> u64 {
        self.classes.iter().filter(|class| class.from != 0).map(|class| class.sums).sum()
    }
}

/// Returns the name of a kind's plot, as part of a file name or a link.
pub(super) fn slug(kind: Kind) -> String {
    kind.title().replace(' ', "-")
}

/// Returns the cases that `rows` are of, each once. Rows of unknown cases are left out.
pub(super) fn cases<'a>(rows: &'a [Row], deviations: &[Deviation]) -> Vec<Case<'a>> {
    let kinds: IndexSet<Kind> = rows.iter().filter_map(Row::kind).collect();
    let case = |kind: Kind| {
        let own = rows.iter().filter(|row| row.kind() == Some(kind));
        let mut threads: Vec<usize> = own.map(|row| row.threads).collect();
        threads.dedup();
        let (drawn, deviations) = (drawn(kind, rows), deviations_of(kind, deviations));
        Case { kind, threads, drawn, deviations }
    };
    kinds.into_iter().map(case).collect()
}

fn drawn(kind: Kind, rows: &[Row]) -> Option<Drawn<'_>> {
    let metric = kind.drawn()?;
    let is_drawn = |row: &&Row| row.kind() == Some(kind) && row.metric == metric.name;
    let (mut series, mut threads) = (IndexMap::<Name, Vec<&Row>>::new(), BTreeSet::new());
    for row in rows.iter().filter(is_drawn) {
        threads.insert(row.threads);
        series.entry(row.contender).or_default().push(row);
    }
    series.values_mut().for_each(|points| points.sort_by_key(|point| point.threads));
    let threads = threads.into_iter().collect();
    (!series.is_empty()).then_some(Drawn { metric, threads, series })
}

fn deviations_of(kind: Kind, deviations: &[Deviation]) -> Vec<Deviations> {
    let mut all: IndexMap<Name, BTreeMap<i64, Class>> = IndexMap::new();
    let is_own = |it: &&Deviation| Kind::find(it.workload, &it.case) == Some(kind);
    for Deviation { contender, class, .. } in deviations.iter().filter(is_own) {
        let known = all.entry(*contender).or_default().entry(class.from);
        known.and_modify(|known| known.sums += class.sums).or_insert(*class);
    }
    let of_one = |(contender, classes): (_, BTreeMap<_, _>)| Deviations {
        contender,
        classes: classes.into_values().collect(),
    };
    all.into_iter().map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Options, figures, plan::Plan, report::Report};

    fn report(workload_and_threads: &str) -> Report {
        let others = "--contender atomic,thiscpu --seconds 0.002 --rounds 2";
        let options = Options::of(&format!("{workload_and_threads} {others}"));
        let plan = Plan::new(&options).unwrap();
        let mut report = Report::new(&plan, []).unwrap();
        for case in &plan.cases {
            let outcome = case.run(&plan.progress(), None).unwrap();
            report.add(&outcome, &figures::rows(&outcome));
        }
        report
    }

    #[test]
    fn numbers_of_threads_are_joined_in_their_case() {
        let report = report("commit --threads 2,1");
        let cases = cases(&report.rows, &report.deviations);
        let titles: Vec<String> = cases.iter().map(|case| case.kind.title()).collect();
        assert_eq!(titles, ["commit accounting", "commit syscalls"]);
        let drawn = cases[1].drawn.as_ref().unwrap();
        assert_eq!((drawn.metric.title, drawn.metric.unit), ("time per op", "ns"));
        assert_eq!((&drawn.threads[..], &cases[1].threads[..]), (&[1, 2][..], &[2, 1][..]));
        assert!(drawn.series.keys().eq(&[Name::Nothing, Name::Atomic, Name::ThisCpu]));
        for (name, points) in &drawn.series {
            let threads: Vec<usize> = points.iter().map(|point| point.threads).collect();
            assert_eq!(threads, [1, 2]);
            let is_spread = |point: &&Row| point.min <= point.median && point.median <= point.max;
            assert!(points.iter().all(is_spread), "{name}: {points:?}");
        }
    }

    #[test]
    fn deviations_of_all_numbers_of_threads_are_added_up() {
        let report = report("sum --threads 2,4");
        let all = cases(&report.rows, &report.deviations);
        let token = all.iter().find(|case| case.kind == Kind::Token).unwrap();
        let sums_in_rows = |name: Name| {
            let is_own = |row: &&Row| row.metric == "sums" && row.contender == name;
            report.rows.iter().filter(is_own).map(|row| row.median as u64).sum::<u64>()
        };
        assert_eq!(token.deviations.len(), 2);
        for deviations in &token.deviations {
            assert_eq!(deviations.sums(), sums_in_rows(deviations.contender));
            assert_eq!(deviations.wrong(), 0, "{deviations:?}");
        }
        assert!(all.iter().all(|case| case.kind == Kind::Token || case.deviations.is_empty()));
    }
}
