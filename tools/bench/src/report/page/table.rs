//! A table, in a box of its own that scrolls sideways on narrow pages.

use crate::{contenders::Name, figures::Grid};
use maud::{Markup, html};

pub(super) fn table(grid: &Grid) -> Markup {
    html! {
        div.scroll role="region" tabindex="0" aria-label=(grid.title) {
            table {
                caption { (grid.title) }
                thead {
                    tr {
                        @for (index, title) in grid.header.iter().enumerate() {
                            th.name[index < grid.names] scope="col" { (title) }
                        }
                    }
                }
                tbody {
                    @for row in &grid.rows {
                        tr.ours[is_ours(row)] {
                            @for (index, cell) in row.iter().enumerate() {
                                @if index == 0 {
                                    th.name scope="row" { (cell) }
                                } @else {
                                    td.name[index < grid.names] { (figure(cell)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn is_ours(row: &[String]) -> bool {
    let name = row.first().and_then(|name| name.parse::<Name>().ok());
    name.is_some_and(Name::is_ours)
}

/// Renders a figure, with its spread in a lighter color.
fn figure(cell: &str) -> Markup {
    match cell.split_once(" (") {
        Some((median, spread)) => html! { (median) " " span.spread { "(" (spread) } },
        None => html! { (cell) },
    }
}
