//! The frame of a plot: its two scales with lines and labels, and the places of figures.

use std::ops::Range;

use anyhow::Result;
use plotters::{
    chart::{ChartBuilder, ChartContext},
    coord::{
        cartesian::Cartesian2d,
        ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
        types::RangedCoordf64,
    },
    prelude::SVGBackend,
    style::{Color as _, TRANSPARENT, text_anchor::HPos},
};

use super::{
    canvas::{Area, FINE, Place, text_style},
    palette::{GRID, MUTED},
    scale::{Scale, tick},
};

/// One direction of a plot.
pub(crate) struct Axis {
    pub(crate) ends: (f64, f64),
    pub(crate) labels: Vec<(f64, String)>,
    /// Whether there is a line through the plot at each label.
    pub(crate) has_lines: bool,
}

/// The free space on each side, in units of the picture.
pub(crate) struct Margins {
    pub(crate) top: i32,
    pub(crate) right: i32,
    pub(crate) bottom: i32,
    pub(crate) left: i32,
}

/// A frame, whose lines and labels are drawn.
pub(crate) struct Frame<'a>(ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>);

impl Axis {
    /// Makes the axis of figures in a unit.
    pub(crate) fn of(scale: &Scale, unit: &str, ticks_max: usize) -> Self {
        let ticks = scale.ticks(ticks_max).into_iter();
        let labels = ticks.map(|(place, value)| (place, tick(value, unit))).collect();
        Self { ends: scale.ends(), labels, has_lines: true }
    }

    /// Makes an axis of names at 0, 1, 2 and so on.
    pub(crate) fn of_names(names: impl IntoIterator<Item = String>) -> Self {
        let labels: Vec<_> =
            names.into_iter().enumerate().map(|(index, name)| (index as f64, name)).collect();
        Self { ends: (-0.5, labels.len() as f64 - 0.5), labels, has_lines: false }
    }
}

/// Places on an axis are linear; it has its own labels.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }

    fn map(&self, place: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(place, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.labels.iter().map(|(place, _)| *place).collect()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, place: &f64) -> String {
        let is_it = |(known, _): &&(f64, String)| known == place;
        self.labels.iter().find(is_it).map_or_else(String::new, |(_, label)| label.clone())
    }
}

impl<'a> Frame<'a> {
    /// Draws a frame, whose `y` ascends.
    pub(crate) fn draw(area: &Area<'a>, margins: &Margins, x: Axis, y: Axis) -> Result<Self> {
        let scaled = |units: i32| units * FINE;
        let (x_has_lines, y_has_lines) = (x.has_lines, y.has_lines);
        let mut chart = ChartBuilder::on(area)
            .margin_top(scaled(margins.top))
            .margin_right(scaled(margins.right))
            .x_label_area_size(scaled(margins.bottom))
            .y_label_area_size(scaled(margins.left))
            .build_cartesian_2d(x, y)?;
        let thin = GRID.rgb().stroke_width(FINE as u32);
        let mut mesh = chart.configure_mesh();
        mesh.axis_style(TRANSPARENT)
            .bold_line_style(thin)
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(scaled(3))
            .x_label_style(text_style(MUTED, false, HPos::Center))
            .y_label_style(text_style(MUTED, false, HPos::Right));
        if !x_has_lines {
            mesh.disable_x_mesh();
        }
        if !y_has_lines {
            mesh.disable_y_mesh();
        }
        mesh.draw()?;
        Ok(Self(chart))
    }

    /// Returns the place of a point in the whole drawing.
    pub(crate) fn place(&self, x: f64, y: f64) -> Place {
        self.0.backend_coord(&(x, y))
    }

    /// Returns the horizontal and the vertical extent of the plot in the whole drawing.
    pub(crate) fn extent(&self) -> (Range<i32>, Range<i32>) {
        self.0.plotting_area().get_pixel_range()
    }
}
