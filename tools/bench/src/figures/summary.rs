//! Figures across cases: how often thiscpu is fastest, and its allocators beside all others.

use indexmap::IndexMap;

use super::{
    Grid, Row,
    table::{span, with_unit},
};
use crate::{
    case,
    contenders::{Name, allocators::OTHER_ALLOCATORS},
    kind::Kind,
    stats::{self, Spread},
};

/// The value that stands for all rounds.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// The median; for ratios, the median of the ratios of each round.
    Median,
    /// The least; for ratios, the ratio of the least.
    ///
    /// Disturbances make a slice longer, never shorter.
    Least,
}

/// Returns the cases that `rows` are of, each with its number of threads and its rows.
fn cases(rows: &[Row]) -> IndexMap<(Kind, usize), Vec<&Row>> {
    let mut cases = IndexMap::<_, Vec<_>>::new();
    for row in rows {
        if let Some(kind) = row.kind() {
            cases.entry((kind, row.threads)).or_default().push(row);
        }
    }
    cases
}

/// Says in how many comparisons this project is the fastest; `None` if there are none.
///
/// The lower bound and the baseline do not count: both do less than is asked of a contender.
pub(crate) fn headline(rows: &[Row]) -> Option<String> {
    let (mut compared, mut won) = (0, 0);
    for ((kind, _), rows) in cases(rows) {
        let best = |is_ours: bool| {
            let counts = |row: &&&Row| {
                row.metric == kind.compared().name
                    && row.contender.is_ours() == is_ours
                    && !row.contender.is_bound()
            };
            rows.iter().filter(counts).map(|row| row.median).min_by(f64::total_cmp)
        };
        if let (Some(ours), Some(theirs)) = (best(true), best(false)) {
            compared += 1;
            won += usize::from(ours <= theirs);
        }
    }
    (compared > 0).then(|| {
        format!("In {won} of {compared} comparisons, a design of thiscpu has the smallest median.")
    })
}

/// Makes two tables, of medians and of least values, with a row for each case of `alloc`.
pub(crate) fn summary(rows: &[Row]) -> Vec<Grid> {
    let mut cases = cases(rows);
    cases.retain(|(kind, _), _| matches!(kind, Kind::Alloc(_)));
    if cases.is_empty() {
        return Vec::new();
    }
    let others = OTHER_ALLOCATORS.iter().filter(|other| other.available().is_ok());
    let others: Vec<_> = others.map(|other| other.as_str()).collect();
    let by_median = format!(
        "alloc, all cases: the smallest median of {} (in resident-64, jemalloc), and ratios of \
         each round",
        others.join(", ")
    );
    let by_least = "alloc, all cases, by the smallest value of all rounds, the least disturbed one";
    vec![grid(by_median, &cases, By::Median), grid(by_least.to_owned(), &cases, By::Least)]
}

fn grid(title: String, cases: &IndexMap<(Kind, usize), Vec<&Row>>, by: By) -> Grid {
    let header = [
        "case",
        "fastest other",
        "its time",
        "thiscpu-cache / it",
        "thiscpu-malloc / it",
        "cache / slub-lock",
        "hardened / malloc",
    ];
    let row = |((kind, threads), rows): (&(Kind, usize), &Vec<&Row>)| {
        let metric = kind.compared();
        let own = |name| rows.iter().find(|it| it.contender == name && it.metric == metric.name);
        let value = |name| Some(if by == By::Median { own(name)?.median } else { own(name)?.min });
        let ratio = |one: Name, other: Name| {
            let spread = match by {
                By::Median => {
                    let ratios = stats::paired_ratios(&own(one)?.values, &own(other)?.values);
                    Spread::of(&ratios)?
                }
                By::Least => Spread::exactly(value(one)? / value(other)?),
            };
            Some(span(spread, "ratio"))
        };
        let others = match kind {
            Kind::Alloc(case) if case.measures_memory() => &[Name::Jemalloc][..],
            _ => &OTHER_ALLOCATORS,
        };
        let measured = others.iter().filter_map(|&other| Some((other, value(other)?)));
        let fastest = measured.min_by(|one, other| one.1.total_cmp(&other.1));
        let to_other = |name| ratio(name, fastest?.0);
        let title = case::title(*kind, *threads);
        [
            title.trim_start_matches("alloc ").to_owned(),
            fastest.map(|(other, _)| other.to_string()).unwrap_or_default(),
            fastest.map(|(_, value)| with_unit(value, metric.unit)).unwrap_or_default(),
            to_other(Name::ThisCpuCache).unwrap_or_default(),
            to_other(Name::ThisCpuMalloc).unwrap_or_default(),
            ratio(Name::ThisCpuCache, Name::SlubLock).unwrap_or_default(),
            ratio(Name::ThisCpuHardened, Name::ThisCpuMalloc).unwrap_or_default(),
        ]
        .to_vec()
    };
    let header = header.map(str::to_owned).to_vec();
    Grid { title, header, rows: cases.iter().map(row).collect(), names: 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        metric::{Metric, RESIDENT_BYTES, TIME_PER_OP},
        workloads::Workload,
    };

    fn row(
        (workload, case, threads): (Workload, &str, usize),
        contender: Name,
        metric: &Metric,
        values: [f64; 3],
    ) -> Row {
        let kind = Kind::find(workload, case).unwrap();
        Row::new((kind, threads), contender, metric, values.to_vec()).unwrap()
    }

    fn lines(grids: &[Grid]) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = |grid: &Grid| grid.to_string().lines().map(words).collect::<Vec<_>>();
        grids.iter().flat_map(lines).collect()
    }

    #[test]
    fn ratios_are_to_the_fastest_other_allocator() {
        let pair = |name, values| row((Workload::Alloc, "pair-64", 1), name, &TIME_PER_OP, values);
        let resident = |name, value| {
            row((Workload::Alloc, "resident-64", 64), name, &RESIDENT_BYTES, [value; 3])
        };
        let rows = [
            pair(Name::Glibc, [20.0, 20.0, 20.0]),
            // The fastest by its median, but not in every round.
            pair(Name::Jemalloc, [10.0, 10.0, 30.0]),
            pair(Name::SlubLock, [1.0, 1.0, 1.0]),
            pair(Name::ThisCpuCache, [5.0, 6.0, 6.0]),
            pair(Name::ThisCpuMalloc, [10.0, 8.0, 30.0]),
            pair(Name::ThisCpuHardened, [11.0, 8.0, 30.0]),
            resident(Name::Glibc, 1e6),
            resident(Name::Jemalloc, 4e6),
            resident(Name::ThisCpuMalloc, 1e6),
        ];
        let lines = lines(&summary(&rows));
        for wanted in [
            "| pair-64, 1 thread | jemalloc | 10.00 ns | 0.500 (0.200 to 0.600) | \
             1.000 (0.800 to 1.000) | 6.000 (5.000 to 6.000) | 1.000 (1.000 to 1.100) |",
            "| resident-64, 64 threads | jemalloc | 4.00 MB | | 0.250 | | |",
            "| pair-64, 1 thread | jemalloc | 10.00 ns | 0.500 | 0.800 | 5.000 | 1.000 |",
        ] {
            assert!(lines.iter().any(|line| line == wanted), "{wanted} in {lines:#?}");
        }
    }

    #[test]
    fn missing_contenders_leave_empty_cells() {
        let alone = (Workload::Alloc, "pair-8", 2);
        let lines = lines(&summary(&[row(alone, Name::ThisCpuCache, &TIME_PER_OP, [1.0; 3])]));
        assert!(lines.iter().any(|line| line == "| pair-8, 2 threads | | | | | | |"), "{lines:#?}");
        assert_eq!(summary(&[]), []);
    }

    #[test]
    fn headline_counts_cases_with_other_contenders() {
        let of = |threads, name, value| {
            row((Workload::Add, "", threads), name, &TIME_PER_OP, [value; 3])
        };
        let rows = [
            of(1, Name::Section, 1.0),
            of(1, Name::Atomic, 4.0),
            of(1, Name::ThisCpu, 2.0),
            of(2, Name::Atomic, 1.0),
            of(2, Name::ThisCpu, 2.0),
            of(3, Name::ThisCpu, 2.0),
        ];
        let text = headline(&rows).unwrap();
        assert!(text.starts_with("In 1 of 2 comparisons"), "{text}");
        assert_eq!(headline(&rows[5..]), None);
    }
}
