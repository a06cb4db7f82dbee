//! The canvas of plots, and the few shapes that they consist of.

use crate::contenders::Name;
use anyhow::Result;
use plotters::{
    coord::Shift,
    drawing::DrawingArea,
    element::{Circle, PathElement, Polygon, Rectangle, Text},
    prelude::{IntoDrawingArea as _, SVGBackend},
    style::{
        Color as _, FontDesc, FontFamily, FontStyle, ShapeStyle, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::palette::{Hue, look};

/// The units of a drawing per unit of its picture.
///
/// Positions are whole numbers, and shapes are finer than a pixel.
pub(crate) const FINE: i32 = 8;

/// The width of a plot: text is readable even on a telephone's page of three quarters of it.
pub(crate) const WIDTH: i32 = 440;

pub(crate) const TEXT: i32 = 13;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) type Place = (i32, i32);

/// Makes a drawing whose picture is `height` units high.
pub(crate) fn drawing(height: i32, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    let size = ((WIDTH * FINE) as u32, (height * FINE) as u32);
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    Ok(svg)
}

/// Returns the style of a text of the usual size.
pub(crate) fn text_style<'a>(hue: Hue, is_bold: bool, across: HPos) -> TextStyle<'a> {
    let style = if is_bold { FontStyle::Bold } else { FontStyle::Normal };
    // The SVG backend divides font sizes by this.
    const POINTS_PER_SIZE: f64 = 1.24;
    let size = f64::from(TEXT * FINE) * POINTS_PER_SIZE;
    let font = FontDesc::new(FontFamily::SansSerif, size, style);
    let color = hue.rgb().to_backend_color();
    TextStyle { font, color, pos: Pos::new(across, VPos::Center) }
}

/// Writes a text, vertically centered at a place, and horizontally as its style says.
pub(crate) fn write(area: &Area<'_>, text: &str, at: Place, style: TextStyle<'_>) -> Result<()> {
    Ok(area.draw(&Text::new(text.to_owned(), at, style))?)
}

pub(crate) fn line(area: &Area<'_>, places: &[Place], style: impl Into<ShapeStyle>) -> Result<()> {
    Ok(area.draw(&PathElement::new(places.to_vec(), style))?)
}

/// Draws the line from the smallest to the largest value of a contender's rounds.
pub(crate) fn whisker(area: &Area<'_>, name: Name, from: Place, to: Place) -> Result<()> {
    let width = if name.is_ours() { 9 * FINE / 4 } else { 6 * FINE / 4 };
    line(area, &[from, to], look(name).0.rgb().mix(0.75).stroke_width(width as u32))
}

/// Draws a contender's shape. This project's are larger.
pub(crate) fn marker(area: &Area<'_>, name: Name, at: Place) -> Result<()> {
    let radius = f64::from(FINE) * if name.is_ours() { 5.2 } else { 3.8 };
    let (hue, shape) = look(name);
    let style = hue.rgb().filled();
    if shape.0.is_empty() {
        return Ok(area.draw(&Circle::new(at, radius.round() as i32, style))?);
    }
    let corner = |&(x, y): &(f64, f64)| {
        (at.0 + (x * radius).round() as i32, at.1 + (y * radius).round() as i32)
    };
    Ok(area.draw(&Polygon::new(shape.0.iter().map(corner).collect::<Vec<_>>(), style))?)
}

/// Draws a filled rectangle in a contender's color.
pub(crate) fn column(area: &Area<'_>, name: Name, from: Place, to: Place) -> Result<()> {
    Ok(area.draw(&Rectangle::new([from, to], look(name).0.rgb().filled()))?)
}
