//! Plots, as SVG that needs no other file.

use crate::figures;
use anyhow::Result;
use maud::{Markup, PreEscaped, html};
use plotters::style::text_anchor::HPos;

use self::{
    canvas::{Area, FINE, WIDTH, text_style, write},
    palette::{MUTED, PAPER},
    scale::Scale,
};
use crate::report::series::{self, Case, Deviations, Drawn};

mod by_threads;
mod canvas;
mod deviations;
mod frame;
pub(crate) mod palette;
mod ranking;
mod scale;

/// The fonts of text, also on the page: those of the reader's system.
pub(crate) const FONTS: &str = "system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",\
    \"Liberation Sans\",Arial,sans-serif";

#[derive(Debug)]
pub(crate) struct Picture {
    /// The case that it shows, as part of a file name.
    pub(crate) slug: String,
    pub(crate) title: String,
    /// Its figures as text, for readers who cannot see it.
    pub(crate) description: String,
    height: i32,
    drawing: String,
}

impl Picture {
    /// Returns the picture as part of a page, whose style sheet it needs.
    pub(crate) fn to_markup(&self) -> Markup {
        self.svg(&html! {})
    }

    /// Returns the picture as a file with a background, light or dark as the reader prefers.
    pub(crate) fn to_file(&self) -> String {
        let (light, dark) = PAPER.css();
        let style = format!(
            "text{{font-family:{FONTS}}}.paper{{fill:{light}}}\
             @media (prefers-color-scheme:dark){{.paper{{fill:{dark}}}{}}}",
            palette::dark_rules()
        );
        let ground = html! {
            style { (PreEscaped(style)) }
            rect.paper width="100%" height="100%" {}
        };
        self.svg(&ground).into_string()
    }

    fn svg(&self, ground: &Markup) -> Markup {
        let (width, height) = (WIDTH, self.height);
        let view = format!("0 0 {} {}", width * FINE, height * FINE);
        html! {
            svg xmlns="http://www.w3.org/2000/svg" role="img" width=(width) height=(height)
                viewBox=(view)
            {
                title { (self.title) }
                desc { (self.description) }
                (ground)
                (PreEscaped(&self.drawing))
            }
        }
    }
}

/// Draws the plots of all cases; those of deviations follow that of their case.
pub(crate) fn pictures(cases: &[Case<'_>]) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for case in cases {
        if let Some(drawn) = &case.drawn {
            pictures.push(of_figures(case, drawn)?);
        }
        if !case.deviations.is_empty() {
            pictures.push(of_deviations(case)?);
        }
    }
    Ok(pictures)
}

fn of_figures(case: &Case<'_>, drawn: &Drawn<'_>) -> Result<Picture> {
    let (height, drawing) = match drawn.threads.len() {
        1 => ranking::draw(drawn)?,
        _ => by_threads::draw(drawn)?,
    };
    let mut description = String::new();
    for (contender, points) in &drawn.series {
        let figures = points.iter().map(|point| {
            let text = |value| figures::with_unit(value, drawn.metric.unit);
            let (median, min, max) = (text(point.median), text(point.min), text(point.max));
            format!("{median} ({min} to {max}) at {}", point.threads)
        });
        let figures: Vec<String> = figures.collect();
        description += &format!("{contender}: {}. ", figures.join(", "));
    }
    Ok(Picture {
        slug: series::slug(case.kind),
        title: format!("{}: {}, by threads", case.kind.title(), drawn.metric.title),
        description: description.trim_end().to_owned(),
        height,
        drawing,
    })
}

fn of_deviations(case: &Case<'_>) -> Result<Picture> {
    let (height, drawing) = deviations::draw(&case.deviations)?;
    let sentence = |deviation: &Deviations| {
        let wrong = deviations::wrong_of(deviation);
        let widest = deviation.classes.iter().map(|class| (class.from, class.to));
        let (from, to) =
            widest.fold((0, 0), |(from, to), class| (from.min(class.0), to.max(class.1)));
        format!("{}: {wrong}, between {from} and {to} off.", deviation.contender)
    };
    let sentences: Vec<String> = case.deviations.iter().map(sentence).collect();
    Ok(Picture {
        slug: format!("{}-deviations", series::slug(case.kind)),
        title: format!("{}: distances of sums from a possible value", case.kind.title()),
        description: sentences.join(" "),
        height,
        drawing,
    })
}

/// Returns a scale that has a place for all figures of a case and their spreads.
fn scale_of(drawn: &Drawn<'_>) -> Scale {
    let points = drawn.series.values().flatten();
    Scale::of(points.flat_map(|point| [point.min, point.median, point.max]))
}

/// Writes the metric and the number of threads above the plot.
fn write_heading(area: &Area<'_>, drawn: &Drawn<'_>, scale: &Scale) -> Result<()> {
    let threads = match drawn.threads[..] {
        [1] => ", 1 thread".to_owned(),
        [threads] => format!(", {threads} threads"),
        _ => String::new(),
    };
    let kind = if scale.is_logarithmic() { " (log scale)" } else { "" };
    let text = format!("{}{threads}{kind}", drawn.metric.title);
    write(area, &text, (4 * FINE, 14 * FINE), text_style(MUTED, false, HPos::Left))
}
