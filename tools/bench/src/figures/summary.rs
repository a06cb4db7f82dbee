//! What all cases of the workload `object` come to: this project's allocators against the fastest that others wrote.

use super::{
    Grid,
    rows::ratio,
    table::{span, with_unit},
};
use crate::{
    case::Outcome,
    contenders::{Name, allocators::OTHER_ALLOCATORS},
    kind::Kind,
    stats::Spread,
};

/// Which of the values of several rounds stands for all.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// The median, and the median of the ratios of each round.
    Median,
    /// The least, and the ratio of the least: whatever else a machine does makes a slice longer and never shorter.
    Least,
}

/// Two tables with a row for each outcome of the workload `object`, by medians and by what was disturbed least; none if
/// there is no such outcome.
pub(crate) fn summary(outcomes: &[Outcome]) -> Vec<Grid> {
    let is_of_objects = |outcome: &&Outcome| matches!(outcome.kind, Kind::Alloc(_));
    let outcomes: Vec<_> = outcomes.iter().filter(is_of_objects).collect();
    if outcomes.is_empty() {
        return Vec::new();
    }
    let others = OTHER_ALLOCATORS
        .iter()
        .filter(|other| other.available().is_ok())
        .map(|other| other.as_str());
    let others: Vec<_> = others.collect();
    let by_median = format!(
        "alloc, all cases: who of {} had the smallest median (in resident-64, jemalloc), and ratios of each round",
        others.join(", ")
    );
    let by_least =
        "alloc, all cases, by the least of all rounds, which is what was disturbed least";
    vec![grid(by_median, &outcomes, By::Median), grid(by_least.to_owned(), &outcomes, By::Least)]
}

fn grid(title: String, outcomes: &[&Outcome], by: By) -> Grid {
    let header = [
        "case",
        "fastest other",
        "its time",
        "thiscpu-cache / it",
        "thiscpu-malloc / it",
        "cache / slub-lock",
        "hardened / malloc",
    ];
    let rows = outcomes.iter().map(|outcome| row(outcome, by).to_vec()).collect();
    Grid { title, header: header.map(str::to_owned).to_vec(), rows, names: 2 }
}

fn row(outcome: &Outcome, by: By) -> [String; 7] {
    let Kind::Alloc(case) = outcome.kind else { unreachable!("only objects are summed up") };
    let plural = if outcome.threads == 1 { "" } else { "s" };
    let fastest = match case.measures_memory() {
        true => value(outcome, Name::Jemalloc, by).map(|value| (Name::Jemalloc, value)),
        false => fastest_other(outcome, by),
    };
    let to_peer = |name| relation(outcome, name, fastest?.0, by);
    let unit = outcome.kind.compared().unit;
    [
        format!("{}, {} thread{plural}", case.name(), outcome.threads),
        fastest.map_or_else(String::new, |(other, _)| other.to_string()),
        fastest.map_or_else(String::new, |(_, value)| with_unit(value, unit)),
        to_peer(Name::ThisCpuCache).unwrap_or_default(),
        to_peer(Name::ThisCpuMalloc).unwrap_or_default(),
        relation(outcome, Name::ThisCpuCache, Name::SlubLock, by).unwrap_or_default(),
        relation(outcome, Name::ThisCpuHardened, Name::ThisCpuMalloc, by).unwrap_or_default(),
    ]
}

fn value(outcome: &Outcome, name: Name, by: By) -> Option<f64> {
    let spread = Spread::of(outcome.values(name, outcome.kind.compared())?)?;
    Some(if by == By::Median { spread.median } else { spread.min })
}

/// How two contenders relate, if both were measured.
fn relation(outcome: &Outcome, one: Name, other: Name, by: By) -> Option<String> {
    let spread = match by {
        By::Median => ratio(outcome, one, other)?,
        By::Least => Spread::exactly(value(outcome, one, by)? / value(outcome, other, by)?),
    };
    Some(span(spread, "ratio"))
}

/// Who of those that others wrote took the least, and how much.
fn fastest_other(outcome: &Outcome, by: By) -> Option<(Name, f64)> {
    let timed =
        OTHER_ALLOCATORS.into_iter().filter_map(|other| Some((other, value(outcome, other, by)?)));
    timed.min_by(|one, other| one.1.total_cmp(&other.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case::Series,
        metric::{Metric, RESIDENT_BYTES, TIME_PER_OP},
        workloads::alloc::AllocCase,
    };

    fn outcome(
        case: &str,
        threads: usize,
        values: &[(Name, &'static Metric, [f64; 3])],
    ) -> Outcome {
        let is_it = |known: &AllocCase| known.name() == case;
        let series = |&(contender, metric, values): &(_, _, [f64; 3])| Series {
            contender,
            metric,
            values: values.to_vec(),
        };
        Outcome {
            kind: Kind::Alloc(AllocCase::ALL.into_iter().find(is_it).unwrap()),
            threads,
            contenders: values.iter().map(|value| value.0).collect(),
            rounds: 3,
            series: values.iter().map(series).collect(),
            deviations: Vec::new(),
        }
    }

    fn words(grids: &[Grid]) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = |grid: &Grid| grid.to_string().lines().map(words).collect::<Vec<_>>();
        grids.iter().flat_map(lines).collect()
    }

    #[test]
    fn ratios_are_to_the_fastest_of_the_others() {
        let pair = outcome(
            "pair-64",
            1,
            &[
                (Name::Glibc, &TIME_PER_OP, [20.0, 20.0, 20.0]),
                // Faster in the middle, if not always.
                (Name::Jemalloc, &TIME_PER_OP, [10.0, 10.0, 30.0]),
                (Name::SlubLock, &TIME_PER_OP, [1.0, 1.0, 1.0]),
                (Name::ThisCpuCache, &TIME_PER_OP, [5.0, 6.0, 6.0]),
                (Name::ThisCpuMalloc, &TIME_PER_OP, [10.0, 8.0, 30.0]),
                (Name::ThisCpuHardened, &TIME_PER_OP, [11.0, 8.0, 30.0]),
            ],
        );
        let idle = outcome(
            "resident-64",
            64,
            &[
                (Name::Glibc, &RESIDENT_BYTES, [1e6, 1e6, 1e6]),
                (Name::Jemalloc, &RESIDENT_BYTES, [4e6, 4e6, 4e6]),
                (Name::ThisCpuMalloc, &RESIDENT_BYTES, [1e6, 1e6, 1e6]),
            ],
        );
        let lines = words(&summary(&[pair, idle]));
        for wanted in [
            "| pair-64, 1 thread | jemalloc | 10.00 ns | 0.500 (0.200 to 0.600) | 1.000 (0.800 to 1.000) | \
             6.000 (5.000 to 6.000) | 1.000 (1.000 to 1.100) |",
            "| resident-64, 64 threads | jemalloc | 4.00 MB | | 0.250 | | |",
            "| pair-64, 1 thread | jemalloc | 10.00 ns | 0.500 | 0.800 | 5.000 | 1.000 |",
        ] {
            assert!(lines.iter().any(|line| line == wanted), "{wanted} in {lines:#?}");
        }
    }

    #[test]
    fn who_was_not_measured_leaves_an_empty_cell() {
        let alone = outcome("pair-8", 2, &[(Name::ThisCpuCache, &TIME_PER_OP, [1.0; 3])]);
        let lines = words(&summary(&[alone]));
        assert!(lines.iter().any(|line| line == "| pair-8, 2 threads | | | | | | |"), "{lines:#?}");
        assert_eq!(summary(&[]), []);
    }
}
