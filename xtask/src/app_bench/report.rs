//! Tables of the results of all runs.

use std::fmt::Write as _;

use comfy_table::Table;
use thiscpu_test_support::stats::{Spread, median};

use super::allocator::{Allocator, Choice};
use super::program::Program;
use super::series::{Mean, Series, Value};
use crate::table::table;

/// The bases of ratios.
///
/// Single programs use the first one that ran, and means have a table for each. The last one is for
/// the cost of hardening and of heap profiles.
const BASES: [Choice; 3] = [Choice::Mimalloc3, Choice::Mimalloc2, Choice::Thiscpu];

/// A value of a run.
struct Metric {
    name: &'static str,
    value: Value,
    shown: fn(f64) -> String,
}

const SECONDS: fn(f64) -> String = |value| format!("{value:.2} s");
const METRICS: [Metric; 3] = [
    Metric { name: "time", value: |cost| cost.time.as_secs_f64(), shown: SECONDS },
    Metric { name: "CPU", value: |cost| cost.cpu.as_secs_f64(), shown: SECONDS },
    Metric {
        name: "peak",
        value: |cost| cost.peak_bytes as f64,
        shown: |bytes| format!("{:.1} MiB", bytes / f64::from(1 << 20)),
    },
];

fn three_places(ratio: f64) -> String {
    format!("{ratio:.3}")
}

/// Returns the text above the tables: versions, and how to read the figures.
pub(super) fn heading(allocators: &[Allocator], rounds: u32) -> String {
    let version = |one: &Allocator| Some(format!("{} {}", one.choice, one.version.as_ref()?));
    let versions: Vec<_> = allocators.iter().filter_map(version).collect();
    let versions = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
    format!(
        "Other allocators: {versions}.\n\
         Rounds: {rounds}. Figures are medians over rounds (smallest to largest).\n\
         Ratios are medians of the ratios in each round.\n\
         CPU: user and system time of all processes; peak: memory of the largest one.\n\
         same: runs with the results of the system's allocator, byte by byte.\n"
    )
}

/// Returns a table for each program, and one of geometric means for each of `BASES`.
pub(super) fn tables(series: &[Series], rounds: u32) -> String {
    let mut text = String::new();
    for program in each_once(series.iter().map(|one| one.program)) {
        let of_it: Vec<_> = series.iter().filter(|one| one.program == program).collect();
        let remark = program.remark().map(|remark| format!(" ({remark})")).unwrap_or_default();
        let _ = write!(text, "\n{program}{remark}\n\n{}\n", of_program(&of_it, rounds));
    }
    for base in BASES {
        if let Some(means) = means(series, base) {
            let _ = write!(
                text,
                "\nRatios to {base}: geometric means over {},\n\
                 of medians (of single rounds: smallest to largest).\n\
                 least CPU: the mean over the least disturbed run of each program.\n\n{means}\n",
                Program::COUNTED.map(|program| program.to_string()).join(", ")
            );
        }
    }
    text
}

fn of_program(series: &[&Series], rounds: u32) -> Table {
    let find = |choice| series.iter().find(|one| one.allocator == choice);
    let base = BASES.into_iter().find_map(find);
    let against = base.map_or_else(String::new, |base| format!("/ {}", base.allocator));
    let metrics: Vec<_> = METRICS.iter().flat_map(|metric| [metric.name, &against]).collect();
    let row = |one: &&Series| {
        let mut cells = vec![one.allocator.to_string()];
        for metric in METRICS {
            cells.push(with_spread(&one.values(metric.value), metric.shown));
            let ratio = base.and_then(|base| median(&one.ratios(base, metric.value)));
            cells.push(ratio.map_or_else(String::new, three_places));
        }
        cells.push(format!("{} of {rounds}", one.costs.len()));
        cells
    };
    let heads = [&["allocator"], &metrics[..], &["same"]].concat();
    table(&heads, series.iter().map(row).collect())
}

fn with_spread(values: &[f64], shown: fn(f64) -> String) -> String {
    Spread::of(values).map_or_else(String::new, |spread| in_spread(spread.median, spread, shown))
}

/// Shows a value, and the ends of its spread unless they are equal.
fn in_spread(value: f64, spread: Spread, shown: fn(f64) -> String) -> String {
    let [value, min, max] = [value, spread.min, spread.max].map(shown);
    if min == max { value } else { format!("{value} ({min} to {max})") }
}

/// Returns the means over programs that ran on both; `None` if none ran on `base`.
fn means<'a>(series: &'a [Series], base: Choice) -> Option<Table> {
    let ran = |allocator: Choice| {
        series.iter().filter(move |one| {
            one.allocator == allocator
                && Program::COUNTED.contains(&one.program)
                && !one.costs.is_empty()
        })
    };
    let all = each_once(series.iter().map(|one| one.allocator));
    // Ratios to thiscpu are only for the cost of its variants.
    let is_shown = |one: &Choice| match base {
        Choice::Thiscpu => matches!(one, Choice::ThiscpuHardened | Choice::ThiscpuProfiled),
        _ => *one != base,
    };
    let (mut any, mut rows) = (false, Vec::new());
    for allocator in all.into_iter().filter(is_shown) {
        let with_base =
            |one: &'a Series| Some((one, ran(base).find(|it| it.program == one.program)?));
        let pairs: Vec<_> = ran(allocator).filter_map(with_base).collect();
        any |= !pairs.is_empty();
        let mean = |metric: &Metric| Mean::of(&pairs, metric.value);
        let shown = |mean: Mean| in_spread(mean.of_medians, mean.of_rounds, three_places);
        let mut cells = vec![allocator.to_string()];
        cells.extend(METRICS.iter().map(|metric| mean(metric).map_or_else(String::new, shown)));
        let least_cpu = mean(&METRICS[1]).map(|mean| three_places(mean.of_least));
        cells.push(least_cpu.unwrap_or_default());
        cells.push(format!("{} of {}", pairs.len(), Program::COUNTED.len()));
        rows.push(cells);
    }
    let metrics = METRICS.map(|metric| metric.name);
    let heads = [&["allocator"], &metrics[..], &["least CPU", "programs"]].concat();
    any.then(|| table(&heads, rows))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app_bench::series::tests::series;

    fn lines(all: &[Series], rounds: u32) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        tables(all, rounds).lines().map(words).collect()
    }

    fn assert_has(lines: &[String], expected: &[&str]) {
        for line in expected {
            assert!(lines.iter().any(|found| found == line), "{line} in {lines:#?}");
        }
    }

    #[test]
    fn tables_have_a_row_for_each_allocator() {
        let all = [
            series(Program::Gcc, Choice::Mimalloc3, &[10, 10]),
            series(Program::Gcc, Choice::Thiscpu, &[5, 5]),
            series(Program::Xz, Choice::Mimalloc3, &[10, 10]),
            series(Program::Xz, Choice::Thiscpu, &[80, 20]),
            // Not a counted program.
            series(Program::Python3Malloc, Choice::Mimalloc3, &[1, 1]),
            series(Program::Python3Malloc, Choice::Thiscpu, &[9, 9]),
        ];
        let lines = lines(&all, 2);
        let (peak, spread) = ("100.0 MiB | 1.000", "1.581 (1.000 to 2.000)");
        assert_has(
            &lines,
            &[
                &format!("| thiscpu | 5.00 s | 0.500 | 10.00 s | 0.500 | {peak} | 2 of 2 |"),
                // Rounds: the roots of 0.5 * 8 and 0.5 * 2; medians: of 0.5 * 5; least: of 0.5 * 2.
                &format!("| thiscpu | {spread} | {spread} | 1.000 | 1.000 | 2 of 13 |"),
            ],
        );
    }

    #[test]
    fn table_of_variants_needs_no_other_allocator() {
        let all = [
            series(Program::Gcc, Choice::Thiscpu, &[100]),
            series(Program::Gcc, Choice::ThiscpuHardened, &[103]),
            series(Program::Gcc, Choice::ThiscpuProfiled, &[101]),
        ];
        let lines = lines(&all, 1);
        let hardened = "| thiscpu-hardened | 1.030 | 1.030 | 1.000 | 1.030 | 1 of 13 |";
        let profiled = "| thiscpu-profiled | 1.010 | 1.010 | 1.000 | 1.010 | 1 of 13 |";
        assert_has(&lines, &[hardened, profiled]);
        // Without mimalloc there is no other base, and with one allocator there is no table.
        assert!(!lines.iter().any(|line| line.contains("mimalloc")), "{lines:#?}");
        assert!(!tables(&all[..1], 1).contains("geometric"));
    }

    #[test]
    fn failed_program_is_in_no_mean() {
        let all = [
            series(Program::Gcc, Choice::Mimalloc3, &[10, 10]),
            series(Program::Gcc, Choice::Thiscpu, &[5, 5]),
            series(Program::Xz, Choice::Mimalloc3, &[10, 10]),
            series(Program::Xz, Choice::Thiscpu, &[]),
        ];
        let lines = lines(&all, 2);
        assert_has(
            &lines,
            &[
                "| thiscpu | | | | | | | 0 of 2 |",
                "| thiscpu | 0.500 | 0.500 | 1.000 | 0.500 | 1 of 13 |",
            ],
        );
    }
}
