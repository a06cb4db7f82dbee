//! What a page says once: on what and how it was measured, how to repeat that, and what a reader has to be warned of.

use maud::{Markup, html};

use crate::report::run::Run;

/// What makes the figures mean less than they seem to.
pub(super) fn notices(run: &Run, done: usize) -> Markup {
    html! {
        @if done < run.cases {
            p.notice role="note" {
                "This run is not complete: " (done) " of " (run.cases) " cases. It is still under way, or it has ended early."
            }
        }
        @if !run.build.is_optimised {
            p.notice role="note" { "This is not an optimised build: its times mean nothing." }
        }
        @for reason in &run.unavailable {
            p.notice role="note" { (with_code(reason)) "." }
        }
    }
}

/// A sentence whose commands are between backticks, without these.
fn with_code(sentence: &str) -> Markup {
    html! {
        @for (index, part) in sentence.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// The machine and the build.
pub(super) fn machine(run: &Run) -> Markup {
    let machine = &run.machine;
    let unknown = "unknown";
    let cpu = if machine.cpu.is_empty() { unknown } else { &machine.cpu };
    let kernel = if machine.kernel.is_empty() { unknown } else { &machine.kernel };
    let build = if run.build.is_optimised { "optimised" } else { "not optimised" };
    let gibibytes = machine.memory_bytes as f64 / f64::from(1 << 30);
    html! {
        section #machine aria-labelledby="machine-title" {
            h2 #machine-title { "Machine" }
            dl.facts {
                (fact("Processor", cpu))
                (fact("CPUs", &format!("{} allowed, {} online", machine.cpus_allowed, machine.cpus_online)))
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

/// The command, and how to read what it comes to.
pub(super) fn repeat(run: &Run) -> Markup {
    let plural = if run.rounds == 1 { "" } else { "s" };
    html! {
        section #repeat aria-labelledby="repeat-title" {
            h2 #repeat-title { "How to repeat it" }
            p { "In a checkout of thiscpu " (run.build.thiscpu) ":" }
            pre { code { (run.command) } }
            p {
                (run.rounds) " round" (plural) ", " (run.seconds_per_slice) " s a slice. A round measures every contender once, \
                 and the next one goes the other way round. Points and figures are medians over the rounds; lines through points, and \
                 figures in brackets, go from the smallest to the largest. Ratios are medians of the ratios of each round: below 1 is \
                 for thiscpu. A scale is logarithmic where that is written above it, and begins at 0 elsewhere."
            }
        }
    }
}
