//! The page: everything in one file, which loads nothing.

use crate::{
    case::Outcome,
    contenders::Name,
    figures::{self, Grid},
    workloads::Workload,
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    plot::{Picture, palette},
    run::Run,
    series::Case,
};

mod facts;
mod table;

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(crate) fn page(
    run: &Run,
    outcomes: &[Outcome],
    cases: &[Case],
    pictures: &[Picture],
) -> String {
    let workloads = workloads(cases);
    let dark =
        format!("@media screen and (prefers-color-scheme:dark){{{}}}", palette::dark_rules());
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content={ "thiscpu " (run.build.thiscpu) };
                title { "thiscpu-bench, " (run.date) }
                style { (PreEscaped(STYLE)) (PreEscaped(dark)) }
            }
            body {
                header {
                    h1 { "thiscpu-bench" }
                    p { "The known designs of shared counters, limits, accounts and allocators, and thiscpu's, side by side on one machine." }
                    (facts::notices(run, outcomes.len()))
                    (contents(&workloads))
                }
                main {
                    (facts::machine(run))
                    (facts::repeat(run))
                    @for workload in &workloads {
                        (section(*workload, outcomes, cases, pictures))
                    }
                    (contenders(outcomes))
                }
                footer {
                    p { "The figures of this page as data: results.json, results.csv, rounds.csv (each round of its own) and deviations.csv, beside it." }
                }
            }
        }
    };
    markup.into_string()
}

/// The workloads there are, each once.
fn workloads(cases: &[Case]) -> Vec<Workload> {
    let mut workloads: Vec<Workload> = cases.iter().map(|case| case.workload).collect();
    workloads.dedup();
    workloads
}

fn contents(workloads: &[Workload]) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                li { a href="#machine" { "Machine" } }
                li { a href="#repeat" { "How to repeat it" } }
                @for workload in workloads {
                    li { a href={ "#" (workload) } { (workload) } }
                }
                li { a href="#contenders" { "Contenders" } }
            }
        }
    }
}

/// A workload: the plots of its cases side by side, and then the tables.
fn section(
    workload: Workload,
    outcomes: &[Outcome],
    cases: &[Case],
    pictures: &[Picture],
) -> Markup {
    let own_cases = cases.iter().filter(|case| case.workload == workload);
    let own = outcomes.iter().filter(|outcome| outcome.workload() == workload);
    let grids: Vec<Grid> = own.map(figures::table).collect();
    let summary = match workload {
        Workload::Alloc => figures::summary(outcomes),
        _ => Vec::new(),
    };
    html! {
        section id=(workload) aria-labelledby={ (workload) "-title" } {
            h2 id={ (workload) "-title" } { (workload) }
            p { (workload.what()) "." }
            div.plots {
                @for case in own_cases {
                    (figures(case, pictures))
                }
            }
            div.tables {
                @for grid in grids.iter().chain(&summary) {
                    (table::table(grid))
                }
            }
        }
    }
}

/// The plots of a case, each with its name and what is done.
fn figures(case: &Case, pictures: &[Picture]) -> Markup {
    let deviations = format!("{}-deviations", case.slug());
    let figure = |slug: &str, title: &str, what: &str| {
        let picture = pictures.iter().find(|picture| picture.slug == slug);
        html! {
            @if let Some(picture) = picture {
                figure id={ "plot-" (slug) } {
                    figcaption { h3 { (title) } p { (what) "." } }
                    (picture.to_markup())
                }
            }
        }
    };
    html! {
        (figure(&case.slug(), &case.title(), case.what))
        (figure(
            &deviations,
            &format!("{}: deviations", case.title()),
            "How far sums were from what can be true; a design that is exact has one column, at 0",
        ))
    }
}

/// Who is who.
fn contenders(outcomes: &[Outcome]) -> Markup {
    let took_part =
        |name: &Name| outcomes.iter().any(|outcome| outcome.contenders().contains(name));
    let names = Name::ALL.into_iter().chain([Name::Nothing]).filter(took_part);
    html! {
        section #contenders aria-labelledby="contenders-title" {
            h2 #contenders-title { "Contenders" }
            dl.names {
                @for name in names {
                    dt { (name) }
                    dd { (name.what()) }
                }
            }
        }
    }
}
