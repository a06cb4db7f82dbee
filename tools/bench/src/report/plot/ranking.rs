//! Figures with one number of threads: a row for each contender, the least first, with its spread.

use anyhow::Result;
use plotters::style::text_anchor::HPos;

use super::{
    canvas::{Area, FINE, drawing, marker, text_style, whisker, write},
    frame::{Axis, Frame, Margins},
    palette::{INK, MUTED},
};
use crate::{
    figures::{self, Row},
    report::series::Drawn,
};

const TOP: i32 = 34;
const BOTTOM: i32 = 28;
const ROW_HEIGHT: i32 = 25;

pub(super) fn draw(drawn: &Drawn<'_>) -> Result<(i32, String)> {
    let mut rows: Vec<&Row> = drawn.series.values().flatten().copied().collect();
    rows.sort_by(|one, other| one.median.total_cmp(&other.median));
    let height = TOP + BOTTOM + rows.len() as i32 * ROW_HEIGHT;
    Ok((height, drawing(height, |area| draw_on(area, drawn, &rows))?))
}

fn draw_on(area: &Area<'_>, drawn: &Drawn<'_>, rows: &[&Row]) -> Result<()> {
    let scale = super::scale_of(drawn);
    let margins = Margins { top: TOP, right: 100, bottom: BOTTOM, left: 144 };
    // The first row is at the top.
    let names = Axis { labels: Vec::new(), ends: (0.5 - rows.len() as f64, 0.5), has_lines: false };
    let frame = Frame::draw(area, &margins, Axis::of(&scale, drawn.metric.unit, 3), names)?;
    super::write_heading(area, drawn, &scale)?;
    let (across, _) = frame.extent();
    for (index, point) in rows.iter().enumerate() {
        let name = point.contender;
        let place = |value: f64| frame.place(scale.place(value), -(index as f64));
        let at = place(point.median);
        whisker(area, name, place(point.min), place(point.max))?;
        marker(area, name, at)?;
        let name_style = text_style(INK, name.is_ours(), HPos::Right);
        write(area, name.as_str(), (across.start - 10 * FINE, at.1), name_style)?;
        let hue = if name.is_ours() { INK } else { MUTED };
        let figure_style = text_style(hue, name.is_ours(), HPos::Right);
        let figure = figures::with_unit(point.median, drawn.metric.unit);
        write(area, &figure, (across.end + 96 * FINE, at.1), figure_style)?;
    }
    Ok(())
}
