//! The page: one file, which loads nothing.

mod facts;
mod table;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    Report,
    plot::{Picture, palette},
    series::{self, Case},
};
use crate::{
    case,
    contenders::Name,
    figures::{self, Grid, Row},
    kind::Kind,
    workloads::Workload,
};

const STYLE: &str = include_str!("style.css");

/// Marks boxes that can be scrolled sideways, so that they say so.
const SCRIPT: &str = "for (const box of document.querySelectorAll('.scroll')) new ResizeObserver(\
     () => box.classList.toggle('wide', box.scrollWidth > box.clientWidth + 1)).observe(box);";

pub(super) fn page(report: &Report, cases: &[Case<'_>], pictures: &[Picture]) -> String {
    let run = &report.run;
    let mut workloads: Vec<Workload> = cases.iter().map(|case| case.kind.workload()).collect();
    workloads.dedup();
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
                    (facts::summary(report))
                    p {
                        "The known designs of shared counters, limits, accounts and allocators, \
                         and thiscpu's, side by side on one machine."
                    }
                    (facts::notices(report))
                    (contents(&workloads))
                }
                main {
                    (facts::machine(run))
                    (facts::repeat(run))
                    @for workload in &workloads {
                        (section(*workload, report, cases, pictures))
                    }
                    (contenders(&report.rows))
                }
                footer {
                    p {
                        "The figures of this page are also in results.csv, and with each round in \
                         results.json, beside it."
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    markup.into_string()
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

/// Renders a workload: the plots of its cases side by side, and then the tables.
fn section(
    workload: Workload,
    report: &Report,
    cases: &[Case<'_>],
    pictures: &[Picture],
) -> Markup {
    let own: Vec<&Case<'_>> =
        cases.iter().filter(|case| case.kind.workload() == workload).collect();
    let mut grids: Vec<Grid> = Vec::new();
    // The many cells of a walk are in one table.
    let with_table = own.iter().filter(|case| !matches!(case.kind, Kind::Walk(_)));
    for case in with_table {
        for &threads in &case.threads {
            let is_own = |row: &&Row| row.is_of(case.kind, threads);
            let rows: Vec<Row> = report.rows.iter().filter(is_own).cloned().collect();
            grids.push(figures::table(case::title(case.kind, threads), &rows));
        }
    }
    match workload {
        Workload::Alloc => grids.extend(figures::summary(&report.rows)),
        Workload::Walk => grids.extend(figures::walk(&report.rows)),
        _ => {}
    }
    html! {
        section id=(workload) aria-labelledby={ (workload) "-title" } {
            h2 id={ (workload) "-title" } { (workload) }
            p { (workload.what()) "." }
            div.plots {
                @for case in own {
                    (plots(case, pictures))
                }
            }
            div.tables {
                @for grid in &grids {
                    (table::table(grid))
                }
            }
        }
    }
}

/// Renders the plots of a case, each with its name and description.
fn plots(case: &Case<'_>, pictures: &[Picture]) -> Markup {
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
    let (title, slug) = (case.kind.title(), series::slug(case.kind));
    html! {
        (figure(&slug, &title, case.kind.info().what))
        (figure(
            &format!("{slug}-deviations"),
            &format!("{title}: deviations"),
            "The distance of each sum from a possible value; an exact design has one column, at 0",
        ))
    }
}

fn contenders(rows: &[Row]) -> Markup {
    let took_part = |name: &Name| rows.iter().any(|row| row.contender == *name);
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
