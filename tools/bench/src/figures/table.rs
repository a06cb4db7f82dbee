//! A table of one outcome, for people.

use std::iter;

use super::{Grid, Row, rows};
use crate::{
    case::Outcome,
    contenders::{Name, allocators},
    cpus::Cpus,
    kind::Kind,
    plan::Plan,
    stats::Spread,
};

/// The lines above all tables: on what and how it was measured, and how to read it.
pub(crate) fn heading(plan: &Plan, tier: &str) -> String {
    let cpus = Cpus::allowed().map_or(0, |cpus| cpus.len());
    let (rounds, seconds) = (plan.rounds, plan.seconds);
    let plural = |count| if count == 1 { "" } else { "s" };
    let (more_cpus, more_rounds) = (plural(cpus), plural(rounds as usize));
    let mut lines = vec![
        format!(
            "tier {tier}, {cpus} CPU{more_cpus}, {rounds} round{more_rounds}, {seconds} s a slice"
        ),
        "Figures are medians over the rounds (smallest to largest); ratios are medians of the \
         ratios of each round."
            .to_owned(),
    ];
    if cfg!(debug_assertions) {
        lines.push("This is not an optimised build: its times mean nothing.".to_owned());
    }
    if plan.cases.iter().any(|case| matches!(case.kind, Kind::Alloc(_))) {
        lines.push(format!("Versions: {}.", allocators::versions().join(", ")));
    }
    lines.extend(plan.unavailable.iter().cloned());
    lines.join("\n")
}

/// A row for each contender, with a column for each metric.
pub(crate) fn table(outcome: &Outcome) -> Grid {
    let rows = rows(outcome);
    let mut metrics: Vec<&str> = Vec::new();
    for row in &rows {
        if !metrics.contains(&row.of.metric) {
            metrics.push(row.of.metric);
        }
    }
    let titles = metrics.iter().map(|metric| metric_title(metric));
    let header = iter::once("contender").chain(titles).map(str::to_owned).collect();
    let row_of = |contender: &Name| {
        let cell_of = |metric: &&str| {
            rows.iter()
                .find(|row| row.of.contender == contender.as_str() && row.of.metric == *metric)
                .map_or_else(String::new, cell)
        };
        iter::once(contender.to_string()).chain(metrics.iter().map(cell_of)).collect()
    };
    let rows = outcome.contenders.iter().map(row_of).collect();
    Grid { title: outcome.title(), header, rows, names: 1 }
}

/// What a metric is called where people read it.
pub(crate) fn metric_title(metric: &str) -> &str {
    match metric {
        "time_per_op" => "time per op",
        "thiscpu_ratio" => "thiscpu / this",
        "cache_ratio" => "thiscpu-cache / this",
        "malloc_ratio" => "thiscpu-malloc / this",
        "hardened_ratio" => "hardened / this",
        "ratio_to_none" => "this / none",
        "wrong_sums" => "wrong sums",
        "max_error" => "max error",
        "time_per_sum" => "time per sum",
        "time_per_sum_p999" => "p99.9",
        "over_grants" => "over-grants",
        "wrong_refusals" => "wrong refusals",
        "lost_units" => "lost units",
        "doubled_units" => "doubled units",
        "recalls_per_second" => "recalls/s",
        "hit_rate" => "hits",
        "time_per_scrape" => "time per scrape",
        "time_per_snapshot" => "time per snapshot",
        "charge_p9999" => "charge, p99.99",
        "charge_p9999_alone" => "the same alone",
        "longest_charge" => "longest charge",
        "token_moves" => "token moves",
        "adders_slowdown" => "adders' slowdown",
        "resident_bytes_per_counter" => "resident per counter",
        "resident_bytes_per_account" => "resident per account",
        "resident_bytes" => "resident",
        "time_per_create" => "time per create",
        other => other,
    }
}

fn cell(row: &Row) -> String {
    span(Spread { median: row.median, min: row.min, max: row.max }, row.of.unit)
}

/// A figure with its unit, and between which ends it lies if it has any.
pub(super) fn span(spread: Spread, unit: &str) -> String {
    let text = |value| with_unit(value, unit);
    let Spread { median, min, max } = spread;
    if min < max {
        format!("{} ({} to {})", text(median), text(min), text(max))
    } else {
        text(median)
    }
}

/// A figure as people read it: short, with its unit.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value.abs() >= 1e6 => format!("{:.1} ms", value / 1e6),
        "ns" if value.abs() >= 1e4 => format!("{:.1} us", value / 1e3),
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
    fn figures_are_short_and_keep_their_unit() {
        assert_eq!(with_unit(1.934, "ns"), "1.93 ns");
        assert_eq!(with_unit(1_934.0, "ns"), "1934 ns");
        assert_eq!(with_unit(27_300.0, "ns"), "27.3 us");
        assert_eq!(with_unit(2_900_000.0, "ns"), "2.9 ms");
        assert_eq!(with_unit(0.5, "ratio"), "0.500");
        assert_eq!(with_unit(100_000.0, "count"), "100000");
        assert_eq!(with_unit(-0.33, "percent"), "-0.3 %");
        assert_eq!(with_unit(168.2, "MB"), "168.2 MB");
        assert_eq!(with_unit(168.2, "bytes"), "168.2 bytes");
        assert_eq!(with_unit(3_121_152.0, "bytes"), "3.12 MB");
    }
}
