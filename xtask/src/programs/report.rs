//! What the runs of all programs came to, in tables for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::allocator::Choice;
use super::measure::Cost;
use super::program::Program;

/// What ratios are to.
const BASE: Choice = Choice::Mimalloc;

/// What is told of a run.
struct Metric {
    name: &'static str,
    value: fn(&Cost) -> f64,
    shown: fn(f64) -> String,
}

const METRICS: [Metric; 3] = [
    Metric { name: "time", value: |cost| cost.time.as_secs_f64(), shown: seconds },
    Metric { name: "CPU", value: |cost| cost.cpu.as_secs_f64(), shown: seconds },
    Metric { name: "peak", value: |cost| cost.peak_bytes as f64, shown: mebibytes },
];

fn seconds(value: f64) -> String {
    format!("{value:.2} s")
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

fn three_places(ratio: f64) -> String {
    format!("{ratio:.3}")
}

/// The runs of one program on one allocator, a round after the other.
pub(super) struct Series {
    pub(super) program: Program,
    pub(super) allocator: Choice,
    pub(super) costs: Vec<Cost>,
}

impl Series {
    pub(super) fn is_of(&self, program: Program, allocator: Choice) -> bool {
        (self.program, self.allocator) == (program, allocator)
    }
}

/// How many runs there were.
pub(super) fn runs(series: &[Series]) -> usize {
    series.iter().map(|one| one.costs.len()).sum()
}

/// A table for each program, and one of geometric means.
pub(super) fn tables(series: &[Series]) -> String {
    let mut text = String::from(
        "Figures are medians over the rounds; ratios are medians of the ratios of each round.\n",
    );
    for program in each_once(series.iter().map(|one| one.program)) {
        let of_it: Vec<_> = series.iter().filter(|one| one.program == program).collect();
        let remark = program.remark().map(|remark| format!(" ({remark})")).unwrap_or_default();
        let _ = write!(text, "\n{program}{remark}\n\n{}\n", of_program(&of_it));
    }
    if let Some(means) = means(series) {
        let _ = write!(text, "\nthis / {BASE}, geometric means\n\n{means}\n");
    }
    text
}

fn of_program(series: &[&Series]) -> Table {
    let base = series.iter().find(|one| one.allocator == BASE);
    let against = format!("/ {BASE}");
    let mut table = table(METRICS.iter().flat_map(|metric| [metric.name, &against]));
    for one in series {
        let mut cells = vec![one.allocator.to_string()];
        for metric in METRICS {
            let values: Vec<_> = one.costs.iter().map(metric.value).collect();
            let ratio = base.and_then(|base| ratio(one, base, metric.value));
            cells.push(median(&values).map_or_else(String::new, metric.shown));
            cells.push(ratio.map_or_else(String::new, three_places));
        }
        table.add_row(cells);
    }
    aligned(table)
}

/// The means over all programs that ran on both; none if nothing ran on what ratios are to.
fn means(series: &[Series]) -> Option<Table> {
    let mut heads = METRICS.map(|metric| metric.name).to_vec();
    heads.push("programs");
    let mut table = table(heads);
    let mut any = false;
    for allocator in each_once(series.iter().map(|one| one.allocator)) {
        let of_it = || series.iter().filter(|one| one.allocator == allocator);
        let mut cells = vec![allocator.to_string()];
        let mut count = 0;
        for metric in METRICS {
            let ratios: Vec<f64> =
                of_it().filter_map(|one| ratio(one, base_of(series, one)?, metric.value)).collect();
            count = ratios.len();
            cells.push(geometric_mean(&ratios).map_or_else(String::new, three_places));
        }
        any |= count > 0;
        cells.push(count.to_string());
        table.add_row(cells);
    }
    any.then(|| aligned(table))
}

fn each_once<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}

fn base_of<'s>(series: &'s [Series], one: &Series) -> Option<&'s Series> {
    series.iter().find(|base| base.is_of(one.program, BASE))
}

fn table<'h>(heads: impl IntoIterator<Item = &'h str>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(std::iter::once("allocator").chain(heads));
    table
}

fn aligned(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The median of the ratios of rounds that both have. What a round's runs have in common, such as what else the machine
/// does then, is not in their ratio.
fn ratio(one: &Series, base: &Series, value: fn(&Cost) -> f64) -> Option<f64> {
    let pairs = one.costs.iter().zip(&base.costs);
    median(&pairs.map(|(one, base)| value(one) / value(base)).collect::<Vec<_>>())
}

/// The middle value, or the mean of the middle two.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let even = sorted.len().is_multiple_of(2);
    Some(if even { f64::midpoint(sorted[sorted.len() / 2 - 1], upper) } else { upper })
}

/// What each ratio would be if all were the same and their product what it is.
fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn series(program: Program, allocator: Choice, seconds: &[u64]) -> Series {
        let cost = |&seconds| Cost {
            time: Duration::from_secs(seconds),
            cpu: Duration::from_secs(2 * seconds),
            peak_bytes: 100 << 20,
        };
        Series { program, allocator, costs: seconds.iter().map(cost).collect() }
    }

    #[test]
    fn means_and_medians() {
        let is = |mean: Option<f64>, wanted: f64| (mean.unwrap() - wanted).abs() < 1e-12;
        assert_eq!(geometric_mean(&[]), None);
        assert!(is(geometric_mean(&[1.5]), 1.5));
        // Twice as fast and twice as slow come to nothing.
        assert!(is(geometric_mean(&[0.5, 2.0]), 1.0));
        assert!(is(geometric_mean(&[1.0, 2.0, 4.0]), 2.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn ratios_are_those_of_rounds() {
        let base = series(Program::Gcc, Choice::Mimalloc, &[10, 40]);
        let half = series(Program::Gcc, Choice::Thiscpu, &[5, 20]);
        assert_eq!(ratio(&half, &base, METRICS[0].value), Some(0.5));
        // Rounds that one of them does not have are left out.
        let short = series(Program::Gcc, Choice::Thiscpu, &[20]);
        assert_eq!(ratio(&short, &base, METRICS[0].value), Some(2.0));
        let none = series(Program::Gcc, Choice::Thiscpu, &[]);
        assert_eq!(ratio(&none, &base, METRICS[0].value), None);
    }

    #[test]
    fn tables_have_a_row_for_each_allocator() {
        let all = [
            series(Program::Gcc, Choice::Mimalloc, &[10]),
            series(Program::Gcc, Choice::Thiscpu, &[5]),
            series(Program::Xz, Choice::Mimalloc, &[10]),
            series(Program::Xz, Choice::Thiscpu, &[80]),
        ];
        let text = tables(&all);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = text.lines().map(words).collect();
        let wanted = [
            "| thiscpu | 5.00 s | 0.500 | 10.00 s | 0.500 | 100.0 MiB | 1.000 |",
            "| thiscpu | 80.00 s | 8.000 | 160.00 s | 8.000 | 100.0 MiB | 1.000 |",
            // The root of 0.5 times 8.
            "| thiscpu | 2.000 | 2.000 | 1.000 | 2 |",
        ];
        for line in wanted {
            assert!(lines.iter().any(|found| found == line), "{line} in {text}");
        }
        // Without mimalloc there is nothing to hold others against.
        assert!(!tables(&all[1..2]).contains("geometric"));
    }
}
