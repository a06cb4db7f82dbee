//! The figures that plots show: by case, contender and number of threads.

use crate::{case::Outcome, contenders::Name, deviations::Class, figures, workloads::Workload};

/// A case with all numbers of threads that it was measured with.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    /// Empty if the workload has only one case.
    pub(crate) name: &'static str,
    /// What is done in it.
    pub(crate) what: &'static str,
    /// What is drawn of it; none if nothing is.
    pub(crate) drawn: Option<Drawn>,
    /// How far sums were off; empty where that was not looked at.
    pub(crate) deviations: Vec<Deviation>,
}

/// The figure that a plot of a case shows.
#[derive(Debug)]
pub(crate) struct Drawn {
    /// Its name, for people.
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// The numbers of threads, in ascending order.
    pub(crate) threads: Vec<usize>,
    /// Who has figures, in the order they are shown.
    pub(crate) series: Vec<Series>,
}

/// One contender's figures, by threads.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) contender: Name,
    pub(crate) points: Vec<Point>,
}

/// A figure with one number of threads, and its spread over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) threads: usize,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// How far one contender's sums were off.
#[derive(Clone, Debug)]
pub(crate) struct Deviation {
    pub(crate) contender: Name,
    pub(crate) classes: Vec<Class>,
}

impl Case {
    /// Its workload and name in one.
    pub(crate) fn title(&self) -> String {
        let space = if self.name.is_empty() { "" } else { " " };
        format!("{}{space}{}", self.workload, self.name)
    }

    /// The same as the name of a file, or of a place on a page.
    pub(crate) fn slug(&self) -> String {
        self.title().replace(' ', "-")
    }
}

impl Deviation {
    /// How many sums there were.
    pub(crate) fn sums(&self) -> u64 {
        self.classes.iter().map(|class| class.sums).sum()
    }

    /// How many were something that cannot be true.
    pub(crate) fn wrong(&self) -> u64 {
        self.classes.iter().filter(|class| class.from != 0).map(|class| class.sums).sum()
    }
}

/// The cases of `outcomes`, each once.
pub(crate) fn cases(outcomes: &[Outcome]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for outcome in outcomes {
        let is_it =
            |case: &&Case| case.workload == outcome.workload() && case.name == outcome.case();
        if cases.iter().any(|case| is_it(&case)) {
            continue;
        }
        let all: Vec<&Outcome> = outcomes
            .iter()
            .filter(|other| {
                other.workload() == outcome.workload() && other.case() == outcome.case()
            })
            .collect();
        cases.push(Case {
            workload: outcome.workload(),
            name: outcome.case(),
            what: outcome.what(),
            drawn: outcome.drawn().and_then(|metric| drawn(metric, &all)),
            deviations: deviations(&all),
        });
    }
    cases
}

fn drawn(metric: &'static str, outcomes: &[&Outcome]) -> Option<Drawn> {
    let mut series: Vec<Series> = Vec::new();
    let mut unit = None;
    let rows = outcomes.iter().flat_map(|outcome| figures::rows(outcome));
    for row in rows.filter(|row| row.of.metric == metric) {
        let point =
            Point { threads: row.of.threads, median: row.median, min: row.min, max: row.max };
        unit = Some(row.of.unit);
        match series.iter_mut().find(|series| series.contender.as_str() == row.of.contender) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                contender: contender(outcomes, row.of.contender)?,
                points: vec![point],
            }),
        }
    }
    let mut threads: Vec<usize> = outcomes.iter().map(|outcome| outcome.threads()).collect();
    threads.sort_unstable();
    series.iter_mut().for_each(|series| series.points.sort_by_key(|point| point.threads));
    Some(Drawn { title: figures::metric_title(metric), unit: unit?, threads, series })
}

fn contender(outcomes: &[&Outcome], name: &str) -> Option<Name> {
    let all = outcomes.iter().flat_map(|outcome| outcome.contenders());
    all.copied().find(|contender| contender.as_str() == name)
}

/// With several numbers of threads, of all of them together.
fn deviations(outcomes: &[&Outcome]) -> Vec<Deviation> {
    let mut all: Vec<Deviation> = Vec::new();
    for (contender, deviations) in outcomes.iter().flat_map(|outcome| outcome.deviations()) {
        let index = match all.iter().position(|known| known.contender == *contender) {
            Some(index) => index,
            None => {
                all.push(Deviation { contender: *contender, classes: Vec::new() });
                all.len() - 1
            }
        };
        for class in deviations.classes() {
            add(&mut all[index].classes, class);
        }
    }
    all
}

fn add(classes: &mut Vec<Class>, class: Class) {
    match classes.binary_search_by_key(&class.from, |known| known.from) {
        Ok(index) => classes[index].sums += class.sums,
        Err(index) => classes.insert(index, class),
    }
}

#[cfg(test)]
mod tests {
    use crate::{plan::Options, plan::Plan};

    use super::*;

    fn outcomes(workload: Workload, threads: &[usize]) -> Vec<Outcome> {
        let options = Options {
            workloads: vec![workload],
            contenders: vec![Name::Atomic, Name::ThisCpu],
            threads: threads.to_vec(),
            seconds: Some(0.002),
            rounds: Some(2),
            ..Options::default()
        };
        let plan = Plan::new(&options).unwrap();
        plan.cases.iter().map(|case| case.run(|_, _| {}).unwrap()).collect()
    }

    #[test]
    fn numbers_of_threads_come_together_in_their_case() {
        let cases = cases(&outcomes(Workload::Commit, &[2, 1]));
        let titles: Vec<String> = cases.iter().map(Case::title).collect();
        assert_eq!(titles, ["commit accounting", "commit syscalls"]);
        let drawn = cases[1].drawn.as_ref().unwrap();
        assert_eq!((drawn.title, drawn.unit), ("time per op", "ns"));
        assert_eq!(drawn.threads, [1, 2]);
        let names: Vec<Name> = drawn.series.iter().map(|series| series.contender).collect();
        assert_eq!(names, [Name::Nothing, Name::Atomic, Name::ThisCpu]);
        for series in &drawn.series {
            let threads: Vec<usize> = series.points.iter().map(|point| point.threads).collect();
            assert_eq!(threads, [1, 2]);
            let is_spread = |point: &Point| point.min <= point.median && point.median <= point.max;
            assert!(series.points.iter().all(is_spread), "{series:?}");
        }
    }

    #[test]
    fn deviations_of_all_numbers_of_threads_are_added_up() {
        let outcomes = outcomes(Workload::Sum, &[2, 4]);
        let all = cases(&outcomes);
        let token = all.iter().find(|case| case.name == "token").unwrap();
        let sums_in_rows = |name: Name| {
            let rows = outcomes.iter().flat_map(figures::rows);
            let own =
                rows.filter(|row| row.of.metric == "sums" && row.of.contender == name.as_str());
            own.map(|row| row.median as u64).sum::<u64>()
        };
        assert_eq!(token.deviations.len(), 2);
        for deviation in &token.deviations {
            assert_eq!(deviation.sums(), sums_in_rows(deviation.contender));
            assert_eq!(deviation.wrong(), 0, "{deviation:?}");
        }
        assert!(all.iter().all(|case| case.name == "token" || case.deviations.is_empty()));
    }
}
