//! Tables of figures, for people.

use std::{fmt, iter};

use comfy_table::{CellAlignment, Table, presets};
use indexmap::IndexSet;

use super::Row;
use crate::{
    contenders::{Name, allocators},
    cpus::Cpus,
    kind::Kind,
    metric::Metric,
    plan::Plan,
    stats::Spread,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    /// The cells, row by row, as many in each as the header has. A cell may be empty.
    pub(crate) rows: Vec<Vec<String>>,
    /// How many columns are names; the others are figures.
    pub(crate) names: usize,
}

impl fmt::Display for Grid {
    /// Writes the title, an empty line, and a table of plain characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(&self.header);
        table.add_rows(&self.rows);
        for column in table.column_iter_mut().skip(self.names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{}\n\n{table}", self.title)
    }
}

/// Returns the lines above all tables: the conditions, and how to read the figures.
pub(crate) fn heading(plan: &Plan, tier: &str) -> String {
    let cpus = Cpus::allowed().map_or(0, |cpus| cpus.len());
    let plural = |count| if count == 1 { "" } else { "s" };
    let rounds = match plan.time {
        Some(time) => format!("as many rounds as fit into {} s", time.as_secs()),
        None => format!("{} round{}", plan.rounds, plural(plan.rounds as usize)),
    };
    let runs = match plan.runs {
        1 => String::new(),
        runs => format!("{runs} runs, "),
    };
    let mut lines = vec![
        format!(
            "tier {tier}, {cpus} CPU{}, {runs}{rounds}, {} s a slice",
            plural(cpus),
            plan.seconds
        ),
        "Figures are medians over the rounds (smallest to largest); ratios are medians of the \
         ratios of each round."
            .to_owned(),
    ];
    if cfg!(debug_assertions) {
        lines.push("This build is not optimized: its times mean nothing.".to_owned());
    }
    if plan.cases.iter().any(|case| matches!(case.kind, Kind::Alloc(_) | Kind::Walk(_))) {
        lines.push(format!("Versions: {}.", allocators::versions().join(", ")));
    }
    lines.extend(plan.unavailable.iter().cloned());
    lines.join("\n")
}

/// Makes the table of a case: a row for each contender, a column for each metric.
pub(crate) fn table(title: String, rows: &[Row]) -> Grid {
    let metrics: IndexSet<&str> = rows.iter().map(|row| row.metric.as_str()).collect();
    let contenders: IndexSet<Name> = rows.iter().map(|row| row.contender).collect();
    let titles = metrics.iter().map(|&name| Metric::find(name).map_or(name, |it| it.title));
    let header = iter::once("contender").chain(titles);
    let cells_of = |contender: &Name| {
        let cell_of = |metric: &&str| {
            let is_it = |row: &&Row| row.contender == *contender && row.metric == *metric;
            let row = rows.iter().find(is_it);
            row.map_or_else(String::new, |row| span(row.spread(), &row.unit))
        };
        iter::once(contender.to_string()).chain(metrics.iter().map(cell_of)).collect()
    };
    let cells = contenders.iter().map(cells_of).collect();
    Grid { title, header: header.map(str::to_owned).collect(), rows: cells, names: 1 }
}

/// Formats a figure with its unit, and its extremes if they differ.
pub(super) fn span(spread: Spread, unit: &str) -> String {
    let text = |value| with_unit(value, unit);
    let Spread { median, min, max } = spread;
    if min < max {
        format!("{} ({} to {})", text(median), text(min), text(max))
    } else {
        text(median)
    }
}

/// Formats a figure with few digits and its unit.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value.abs() >= 1e6 => format!("{:.1} ms", value / 1e6),
        "ns" if value.abs() >= 1e4 => format!("{:.1} µs", value / 1e3),
        "ns" if value.abs() >= 100.0 => format!("{value:.0} ns"),
        "ns" => format!("{value:.2} ns"),
        "ratio" => format!("{value:.3}"),
        "count" => format!("{value:.0}"),
        "bytes" if value.abs() >= 1e5 => format!("{:.2} MB", value / 1e6),
        "percent" => format!("{value:.1} %"),
        other => format!("{value:.1} {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::with_unit;

    #[test]
    fn figures_have_few_digits_and_a_unit() {
        assert_eq!(with_unit(1.934, "ns"), "1.93 ns");
        assert_eq!(with_unit(1_934.0, "ns"), "1934 ns");
        assert_eq!(with_unit(27_300.0, "ns"), "27.3 µs");
        assert_eq!(with_unit(2_900_000.0, "ns"), "2.9 ms");
        assert_eq!(with_unit(0.5, "ratio"), "0.500");
        assert_eq!(with_unit(100_000.0, "count"), "100000");
        assert_eq!(with_unit(-0.33, "percent"), "-0.3 %");
        assert_eq!(with_unit(168.2, "MB"), "168.2 MB");
        assert_eq!(with_unit(168.2, "bytes"), "168.2 bytes");
        assert_eq!(with_unit(3_121_152.0, "bytes"), "3.12 MB");
    }
}
