//! The facts of a run: its summary, its conditions, and warnings to the reader.

use maud::{Markup, html};

use crate::{
    figures,
    report::{Report, run::Run},
};

/// Renders the first line of the page: the result of the run, and its machine.
pub(super) fn summary(report: &Report) -> Markup {
    let machine = &report.run.machine;
    let cpu = if machine.cpu.is_empty() { "an unknown processor" } else { &machine.cpu };
    let headline = figures::headline(&report.rows);
    html! {
        p.summary {
            @if let Some(line) = headline { (line) " " }
            "Measured with " (machine.cpus_allowed) " CPUs of " (cpu) ", tier " (machine.tier) "."
        }
    }
}

/// Renders warnings, such as that the figures are partial.
pub(super) fn notices(report: &Report) -> Markup {
    let run = &report.run;
    html! {
        @if !report.is_complete {
            p.notice role="note" {
                "These figures are partial: " (report.cases_done) " of " (run.cases) " cases are \
                 complete. The run is still in progress, or was interrupted."
            }
        }
        @if !run.build.is_optimized {
            p.notice role="note" { "This build is not optimized: its times mean nothing." }
        }
        @for reason in &run.unavailable {
            p.notice role="note" { (with_code(reason)) "." }
        }
    }
}

/// Renders a sentence, with the parts between backticks as code.
fn with_code(sentence: &str) -> Markup {
    html! {
        @for (index, part) in sentence.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

pub(super) fn machine(run: &Run) -> Markup {
    let machine = &run.machine;
    let unknown = "unknown";
    let cpu = if machine.cpu.is_empty() { unknown } else { &machine.cpu };
    let kernel = if machine.kernel.is_empty() { unknown } else { &machine.kernel };
    let build = if run.build.is_optimized { "optimized" } else { "not optimized" };
    let gibibytes = machine.memory_bytes as f64 / f64::from(1 << 30);
    let cpus = format!("{} allowed, {} online", machine.cpus_allowed, machine.cpus_online);
    html! {
        section #machine aria-labelledby="machine-title" {
            h2 #machine-title { "Machine" }
            dl.facts {
                (fact("Processor", cpu))
                (fact("CPUs", &cpus))
                (fact("Memory", &format!("{gibibytes:.1} GiB")))
                (fact("Kernel", &format!("Linux {kernel}, {}", machine.architecture)))
                (fact("Tier of thiscpu", &machine.tier))
                (fact("thiscpu", &format!("{}, {build}", run.build.thiscpu)))
                (fact("Allocators", &run.build.allocators.join(", ")))
                (fact("Date", &run.date))
            }
        }
    }
}

fn fact(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Renders the command, and how to read the figures.
pub(super) fn repeat(run: &Run) -> Markup {
    let plural = if run.rounds == 1 { "" } else { "s" };
    html! {
        section #repeat aria-labelledby="repeat-title" {
            h2 #repeat-title { "How to repeat it" }
            p { "In a checkout of thiscpu " (run.build.thiscpu) ":" }
            pre { code { (run.command) } }
            p {
                (run.rounds) " round" (plural) ", " (run.seconds_per_slice) " s a slice. A \
                 round measures every contender once, and the next round has the opposite order. \
                 Points and figures are medians over the rounds. Lines through points, and \
                 figures in brackets, go from the smallest to the largest. Ratios are medians of \
                 the ratios of each round; thiscpu is faster where they are below 1. A scale is \
                 logarithmic if the line above it says so, and begins at 0 otherwise."
            }
        }
    }
}
