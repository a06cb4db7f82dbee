//! The distances of sums from a possible value: a histogram for each contender.

use anyhow::Result;
use indicatif::HumanCount;
use plotters::style::text_anchor::HPos;

use super::{
    canvas::{Area, FINE, WIDTH, column, drawing, text_style, write},
    frame::{Axis, Frame, Margins},
    palette::{INK, MUTED},
};
use crate::{deviations::class_of, report::series::Deviations};

const TOP: i32 = 30;
const BOTTOM: i32 = 40;
const PANEL: i32 = 88;
/// The space above a panel's columns, for a name and the number of wrong sums.
const PANEL_TOP: i32 = 36;

/// The most labels that fit under the columns.
const LABELS_MAX: usize = 11;

pub(super) fn draw(deviations: &[Deviations]) -> Result<(i32, String)> {
    let height = TOP + BOTTOM + deviations.len() as i32 * PANEL;
    Ok((height, drawing(height, |area| draw_on(area, deviations))?))
}

fn draw_on(area: &Area<'_>, deviations: &[Deviations]) -> Result<()> {
    let muted = || text_style(MUTED, false, HPos::Left);
    write(area, "sums (log scale)", (4 * FINE, 14 * FINE), muted())?;
    let classes = || deviations.iter().flat_map(|deviation| &deviation.classes);
    // One more than the widest, so that no column is at an edge.
    let side = classes().map(|class| class_of(class.from).abs()).max().unwrap_or(0) + 1;
    let most = classes().map(|class| class.sums).max().unwrap_or(1) as f64;
    for (index, deviation) in deviations.iter().enumerate() {
        let is_last = index + 1 == deviations.len();
        let top = (TOP + index as i32 * PANEL) * FINE;
        let height = (if is_last { PANEL + BOTTOM } else { PANEL }) * FINE;
        let panel = area.clone().shrink((0, top), (WIDTH * FINE, height));
        draw_panel(&panel, area, deviation, side, most, is_last)?;
    }
    let below = (TOP + deviations.len() as i32 * PANEL + 32) * FINE;
    let style = text_style(MUTED, false, HPos::Center);
    let title = "distance from 0 or 1, in classes that double";
    write(area, title, ((62 + WIDTH - 8) / 2 * FINE, below), style)
}

fn draw_panel<'a>(
    panel: &Area<'a>,
    area: &Area<'a>,
    deviation: &Deviations,
    side: i32,
    most: f64,
    is_last: bool,
) -> Result<()> {
    let bottom = if is_last { BOTTOM } else { 0 };
    let margins = Margins { top: PANEL_TOP, right: 8, bottom, left: 62 };
    let labels = if is_last { labels(side) } else { Vec::new() };
    let ends = (-f64::from(side) - 0.5, f64::from(side) + 0.5);
    let distances = Axis { ends, labels, has_lines: false };
    // The scale begins below one sum, so that one is visible.
    let floor = 0.5_f64.log10();
    let counts = Axis {
        ends: (floor, (most.log10() + 0.1).max(1.0)),
        labels: count_labels(most),
        has_lines: true,
    };
    let frame = Frame::draw(panel, &margins, distances, counts)?;
    let (across, along) = frame.extent();
    let above = along.start - 13 * FINE;
    let name = deviation.contender;
    let name_style = text_style(INK, name.is_ours(), HPos::Left);
    write(area, name.as_str(), (across.start, above), name_style)?;
    let style = text_style(if name.is_ours() { INK } else { MUTED }, name.is_ours(), HPos::Right);
    write(area, &wrong_of(deviation), (across.end, above), style)?;
    for class in &deviation.classes {
        let middle = f64::from(class_of(class.from));
        let upper_left = frame.place(middle - 0.38, (class.sums as f64).log10());
        column(area, name, upper_left, frame.place(middle + 0.38, floor))?;
    }
    Ok(())
}

pub(super) fn wrong_of(deviation: &Deviations) -> String {
    format!("{} wrong of {}", HumanCount(deviation.wrong()), HumanCount(deviation.sums()))
}

/// Returns the labels of columns: the least distance of each class, as far as there is room.
fn labels(side: i32) -> Vec<(f64, String)> {
    let columns = 2 * side as usize + 1;
    let each = columns.div_ceil(LABELS_MAX) as i32;
    let label = |index: i32| match index {
        0 => "0".to_owned(),
        _ => {
            let sign = if index < 0 { "-" } else { "" };
            format!("{sign}{}", short(1 << (index.unsigned_abs() - 1)))
        }
    };
    let labelled = (-side..=side).filter(|index| index % each == 0);
    labelled.map(|index| (f64::from(index), label(index))).collect()
}

/// Formats a power of two, in at most four characters for distances that occur.
fn short(number: u64) -> String {
    match number {
        0..1024 => number.to_string(),
        1024..1_048_576 => format!("{}Ki", number >> 10),
        1_048_576..1_073_741_824 => format!("{}Mi", number >> 20),
        _ => format!("2^{}", number.ilog2()),
    }
}

/// Returns the labels of heights: 1, and the largest power of ten that a column reaches.
fn count_labels(most: f64) -> Vec<(f64, String)> {
    let top = most.log10().floor().max(1.0) as u32;
    let text = |power: u32| match power {
        0..6 => HumanCount(10_u64.pow(power)).to_string(),
        6..9 => format!("{} M", 10_u64.pow(power - 6)),
        _ => format!("10^{power}"),
    };
    [0, top].map(|power| (f64::from(power), text(power))).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_labels_fit() {
        let texts = |side| labels(side).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts(2), ["-2", "-1", "0", "1", "2"]);
        let each_third = ["-2Ki", "-256", "-32", "-4", "0", "4", "32", "256", "2Ki"];
        assert_eq!(texts(12), each_third);
        assert!(texts(64).len() <= LABELS_MAX);
    }

    #[test]
    fn count_labels_fit() {
        for most in [1.0, 9.0, 470_000.0, 17_748_755.0, 1e9, 1e15] {
            let labels = count_labels(most);
            assert_eq!(labels[0], (0.0, "1".to_owned()));
            assert!(labels[1].1.len() <= 7, "{labels:?}");
        }
        assert_eq!(count_labels(17_748_755.0)[1], (7.0, "10 M".to_owned()));
        assert_eq!(count_labels(470_000.0)[1], (5.0, "100,000".to_owned()));
    }
}
