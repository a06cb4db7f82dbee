//! Figures by threads: a line for each contender, with the spread at each point.

use std::ops::Range;

use anyhow::Result;
use plotters::style::{Color as _, text_anchor::HPos};

use super::{
    canvas::{Area, FINE, Place, drawing, line, marker, text_style, whisker, write},
    frame::{Axis, Frame, Margins},
    palette::{INK, MUTED, look},
};
use crate::{figures::Row, report::series::Drawn};

const TOP: i32 = 34;
const BOTTOM: i32 = 46;

/// The least distance between two names beside the lines' ends, in units of the picture.
const NAME_HEIGHT: i32 = 17;

/// The horizontal distance between the points of two contenders with equal threads.
const DODGE: i32 = 7;

pub(super) fn draw(drawn: &Drawn<'_>) -> Result<(i32, String)> {
    let height = TOP + BOTTOM + (drawn.series.len() as i32 * NAME_HEIGHT).max(190);
    Ok((height, drawing(height, |area| draw_on(area, drawn))?))
}

fn draw_on(area: &Area<'_>, drawn: &Drawn<'_>) -> Result<()> {
    let scale = super::scale_of(drawn);
    let threads = Axis::of_names(drawn.threads.iter().map(usize::to_string));
    let margins = Margins { top: TOP, right: 160, bottom: BOTTOM, left: 62 };
    let figures = Axis::of(&scale, drawn.metric.unit, 7);
    let frame = Frame::draw(area, &margins, threads, figures)?;
    super::write_heading(area, drawn, &scale)?;
    let (across, along) = frame.extent();
    let middle = i32::midpoint(across.start, across.end);
    let below = along.end + 34 * FINE;
    write(area, "threads", (middle, below), text_style(MUTED, false, HPos::Center))?;

    let places_of = |(index, points): (usize, &Vec<&Row>)| {
        let offset = (2 * index as i32 - (drawn.series.len() as i32 - 1)) * DODGE * FINE / 2;
        let place = |point: &&Row| {
            let index = drawn.threads.iter().position(|&threads| threads == point.threads);
            let (x, y) = frame.place(index.unwrap_or_default() as f64, scale.place(point.median));
            (x + offset, y)
        };
        points.iter().map(place).collect()
    };
    let places: Vec<Vec<Place>> = drawn.series.values().enumerate().map(places_of).collect();
    // This project's are drawn last, so that they are on top.
    let mut order: Vec<_> = drawn.series.iter().zip(&places).collect();
    order.sort_by_key(|((name, _), _)| name.is_ours());
    for ((&name, points), places) in order {
        let (width, share) = if name.is_ours() { (10, 0.9) } else { (5, 0.45) };
        let style = look(name).0.rgb().mix(share).stroke_width((width * FINE / 4) as u32);
        line(area, places, style)?;
        for (point, &(x, y)) in points.iter().zip(places) {
            let end = |value: f64| (x, frame.place(0.0, scale.place(value)).1);
            whisker(area, name, end(point.min), end(point.max))?;
            marker(area, name, (x, y))?;
        }
    }
    write_names(area, drawn, &places, across.end + 14 * FINE, along)
}

/// Writes the names at the right, each as close to the end of its line as others allow.
fn write_names(
    area: &Area<'_>,
    drawn: &Drawn<'_>,
    places: &[Vec<Place>],
    x: i32,
    along: Range<i32>,
) -> Result<()> {
    let wanted: Vec<i32> =
        places.iter().map(|places| places.last().map_or(along.end, |place| place.1)).collect();
    let heights = apart(&wanted, NAME_HEIGHT * FINE, along);
    for (&name, y) in drawn.series.keys().zip(heights) {
        marker(area, name, (x, y))?;
        let style = text_style(INK, name.is_ours(), HPos::Left);
        write(area, name.as_str(), (x + 10 * FINE, y), style)?;
    }
    Ok(())
}

/// Returns places close to those `wanted`, in their order, at least `distance` apart.
///
/// They are inside `range` as far as there is room.
fn apart(wanted: &[i32], distance: i32, range: Range<i32>) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| wanted[index]);
    let mut places = wanted.to_vec();
    let mut least = range.start;
    for &index in &order {
        places[index] = places[index].max(least);
        least = places[index] + distance;
    }
    let mut most = range.end;
    for &index in order.iter().rev() {
        places[index] = places[index].min(most);
        most = places[index] - distance;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn names_are_moved_only_as_far_as_needed() {
        assert_eq!(apart(&[50, 10, 90], 10, 0..100), [50, 10, 90]);
        assert_eq!(apart(&[50, 48, 90], 10, 0..100), [58, 48, 90]);
        assert_eq!(apart(&[100, 100, 100], 10, 0..100), [80, 90, 100]);
        assert_eq!(apart(&[-5, 0], 10, 0..100), [0, 10]);
    }
}
