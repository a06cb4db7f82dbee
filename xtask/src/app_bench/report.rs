//! What the runs of all programs came to, in tables for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::allocator::{Allocator, Choice};
use super::program::Program;
use super::series::{Mean, Series, Value};
use crate::stats::{largest, least, median};

/// What ratios are to, if it ran: the first of these for single programs, each of them for means. The last is for what
/// hardening costs.
const BASES: [Choice; 3] = [Choice::Mimalloc3, Choice::Mimalloc2, Choice::Thiscpu];

/// What is told of a run.
struct Metric {
    name: &'static str,
    value: Value,
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

/// How many runs there were.
pub(super) fn runs(series: &[Series]) -> usize {
    series.iter().map(|one| one.costs.len()).sum()
}

/// The lines above the tables: whose figures they are, and how to read them.
pub(super) fn heading(allocators: &[Allocator], rounds: u32) -> String {
    let version = |one: &Allocator| Some(format!("{} {}", one.choice, one.version.as_ref()?));
    let versions: Vec<_> = allocators.iter().filter_map(version).collect();
    let versions = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
    format!(
        "Versions of others: {versions}.\n\
         Rounds: {rounds}. Figures are medians over them (smallest to largest); ratios are medians of the ratios of each \
         of them.\nCPU is user and system time of all processes, peak the memory of the largest of them; `same` is how \
         many runs\nhad, byte by byte, the results of the system's allocator.\n"
    )
}

/// A table for each program, and one of geometric means for each of `BASES`.
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
                "\nthis / {base}: geometric means over {}, of medians (of single rounds: smallest to largest); \
                 `least CPU`:\nof each program's least CPU time, which is what was disturbed least\n\n{means}\n",
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
    let metrics = METRICS.iter().flat_map(|metric| [metric.name, &against]);
    let mut table = table(metrics.chain(["same"]));
    for one in series {
        let mut cells = vec![one.allocator.to_string()];
        for metric in METRICS {
            cells.push(with_spread(&one.values(metric.value), metric.shown));
            let ratio = base.and_then(|base| median(&one.ratios(base, metric.value)));
            cells.push(ratio.map_or_else(String::new, three_places));
        }
        cells.push(format!("{} of {rounds}", one.costs.len()));
        table.add_row(cells);
    }
    aligned(table)
}

fn with_spread(values: &[f64], shown: fn(f64) -> String) -> String {
    let ends = median(values).zip(least(values)).zip(largest(values));
    ends.map_or_else(String::new, |((middle, least), largest)| {
        let [middle, least, largest] = [middle, least, largest].map(shown);
        if least == largest { middle } else { format!("{middle} ({least} to {largest})") }
    })
}

/// The means over those of the programs that count which ran on both; none if nothing ran on what ratios are to.
fn means(series: &[Series], base: Choice) -> Option<Table> {
    let heads = METRICS.iter().map(|metric| metric.name);
    let mut table = table(heads.chain(["least CPU", "programs"]));
    let ran = |allocator: Choice| {
        series.iter().filter(move |one| {
            one.allocator == allocator
                && Program::COUNTED.contains(&one.program)
                && !one.costs.is_empty()
        })
    };
    let all = each_once(series.iter().map(|one| one.allocator));
    // To the allocator itself only what hardening costs is of interest.
    let is_shown = |one: &Choice| match base {
        Choice::Thiscpu => *one == Choice::ThiscpuHardened,
        _ => *one != base,
    };
    let mut any = false;
    for allocator in all.into_iter().filter(is_shown) {
        let with_base =
            |one| ran(base).find(|other: &&Series| is_pair(one, other)).map(|other| (one, other));
        let pairs: Vec<_> = ran(allocator).filter_map(with_base).collect();
        any |= !pairs.is_empty();
        let mean = |metric: &Metric| Mean::of(&pairs, metric.value);
        let mut cells = vec![allocator.to_string()];
        cells.extend(METRICS.iter().map(|metric| mean(metric).map_or_else(String::new, shown)));
        let least_cpu = mean(&METRICS[1]).map(|mean| three_places(mean.of_least));
        cells.push(least_cpu.unwrap_or_default());
        cells.push(format!("{} of {}", pairs.len(), Program::COUNTED.len()));
        table.add_row(cells);
    }
    any.then(|| aligned(table))
}

fn is_pair(one: &Series, other: &Series) -> bool {
    one.program == other.program
}

fn shown(mean: Mean) -> String {
    let [least, largest] = mean.of_rounds.map(three_places);
    let middle = three_places(mean.of_medians);
    if least == largest { middle } else { format!("{middle} ({least} to {largest})") }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app_bench::series::tests::series;

    fn lines(all: &[Series], rounds: u32) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        tables(all, rounds).lines().map(words).collect()
    }

    fn assert_has(lines: &[String], wanted: &[&str]) {
        for line in wanted {
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
            // Not one of those that count.
            series(Program::Python3Malloc, Choice::Mimalloc3, &[1, 1]),
            series(Program::Python3Malloc, Choice::Thiscpu, &[9, 9]),
        ];
        let lines = lines(&all, 2);
        let peak = "100.0 MiB | 1.000";
        assert_has(
            &lines,
            &[
                &format!("| thiscpu | 5.00 s | 0.500 | 10.00 s | 0.500 | {peak} | 2 of 2 |"),
                // Rounds: the roots of 0.5 times 8, and of 0.5 times 2; medians: of 0.5 times 5; least: of 0.5 times 2.
                "| thiscpu | 1.581 (1.000 to 2.000) | 1.581 (1.000 to 2.000) | 1.000 | 1.000 | 2 of 7 |",
            ],
        );
    }

    #[test]
    fn what_hardening_costs_needs_nobody_else() {
        let all = [
            series(Program::Gcc, Choice::Thiscpu, &[100]),
            series(Program::Gcc, Choice::ThiscpuHardened, &[103]),
        ];
        let lines = lines(&all, 1);
        let row = "| thiscpu-hardened | 1.030 | 1.030 | 1.000 | 1.030 | 1 of 7 |";
        assert_has(&lines, &[row]);
        // Without mimalloc there is nothing to hold others against, and with the allocator alone nothing at all.
        assert!(!lines.iter().any(|line| line.contains("mimalloc")), "{lines:#?}");
        assert!(!tables(&all[..1], 1).contains("geometric"));
    }

    #[test]
    fn a_program_that_failed_is_in_no_mean_and_says_so() {
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
                "| thiscpu | 0.500 | 0.500 | 1.000 | 0.500 | 1 of 7 |",
            ],
        );
    }
}
