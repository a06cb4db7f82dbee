//! `--list`: the cases, contenders and metrics there are.

use std::fmt::Write as _;

use crate::{contenders::Name, kind::Kind, metric::Metric, plan::Plan, workloads::Workload};

/// Lists the cases of `plan`, with the contenders that run them; all metrics.
pub(crate) fn list(plan: &Plan) -> String {
    let mut text = String::from("Cases, and their numbers of threads:\n");
    let mut kinds: Vec<Kind> = plan.cases.iter().map(|case| case.kind).collect();
    kinds.dedup();
    for &kind in &kinds {
        let of_kind = plan.cases.iter().filter(|case| case.kind == kind);
        let threads: Vec<_> = of_kind.map(|case| case.threads.to_string()).collect();
        let named = if kind.runs_by_default() { "" } else { " (only if named)" };
        let (title, what) = (kind.title(), kind.info().what);
        let _ = writeln!(text, "  {title:<22} {:<8} {what}{named}", threads.join(","));
    }
    text.push_str("\nContenders:\n");
    for workload in Workload::ALL {
        let own = plan.cases.iter().filter(|case| case.kind.workload() == workload);
        let names: Vec<&Name> = own.flat_map(|case| &case.contenders).collect();
        let known = Name::ALL.iter().chain([&Name::Nothing]);
        let names: Vec<_> =
            known.filter(|name| names.contains(name)).map(|name| name.as_str()).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "  {workload:<10} {}", names.join(", "));
        }
    }
    text.push('\n');
    for name in Name::ALL {
        let reason = if name.available().is_ok() { "" } else { " (unavailable)" };
        let _ = writeln!(text, "  {name:<27} {}{reason}", name.what());
    }
    text.push_str("\nMetrics:\n");
    for metric in Metric::ALL {
        let _ = writeln!(text, "  {:<27} {} ({})", metric.name, metric.what, metric.unit);
    }
    text.trim_end().to_owned()
}
