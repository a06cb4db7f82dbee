//! Colors and shapes: one of each for every contender, so that colorblind readers can tell them
//! apart.
//!
//! Plots are drawn in the colors of a light page. On a dark page, a style sheet replaces each color
//! by its counterpart. So one drawing serves both.

use std::fmt::Write as _;

use crate::contenders::Name;
use plotters::style::RGBColor;

/// A color on a light page and its counterpart on a dark one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hue {
    light: u32,
    dark: u32,
}

pub(crate) const PAPER: Hue = Hue { light: 0xffffff, dark: 0x14171c };
/// Text.
pub(crate) const INK: Hue = Hue { light: 0x1f2328, dark: 0xe6e8eb };
/// Secondary text, such as scales.
pub(crate) const MUTED: Hue = Hue { light: 0x59636e, dark: 0x9aa4af };
pub(crate) const GRID: Hue = Hue { light: 0xe1e4e8, dark: 0x343a42 };

// The colors of Okabe and Ito, with enough contrast for thin lines on white and on black.
const VERMILION: Hue = Hue { light: 0xd55e00, dark: 0xff8a3d };
const RUST: Hue = Hue { light: 0x9c3f00, dark: 0xffb98a };
const TAN: Hue = Hue { light: 0xc77a3a, dark: 0xd98a4a };
const BLUE: Hue = Hue { light: 0x0072b2, dark: 0x4da6e0 };
const GREEN: Hue = Hue { light: 0x00805c, dark: 0x2fc79a };
const PURPLE: Hue = Hue { light: 0xb25a8c, dark: 0xe39ac4 };
const SKY: Hue = Hue { light: 0x2a8fc7, dark: 0x8fd0f5 };
const OLIVE: Hue = Hue { light: 0x8a7a00, dark: 0xe0d04a };
const GREY: Hue = Hue { light: 0x6b7280, dark: 0xa3abb5 };
const WINE: Hue = Hue { light: 0x7b2d5b, dark: 0xc98bb0 };

const ALL: [Hue; 13] =
    [INK, MUTED, GRID, VERMILION, RUST, TAN, BLUE, GREEN, PURPLE, SKY, OLIVE, GREY, WINE];

impl Hue {
    /// Returns the color that plots are drawn in.
    pub(crate) fn rgb(self) -> RGBColor {
        let [_, red, green, blue] = self.light.to_be_bytes();
        RGBColor(red, green, blue)
    }

    /// Returns the colors of light and of dark pages, for a style sheet.
    pub(crate) fn css(self) -> (String, String) {
        (format!("#{:06X}", self.light), format!("#{:06X}", self.dark))
    }
}

/// Returns the CSS rules that turn a drawing into one for dark pages.
pub(crate) fn dark_rules() -> String {
    let mut rules = String::new();
    for hue in ALL {
        let (light, dark) = hue.css();
        let _ = write!(
            rules,
            "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}"
        );
    }
    rules
}

/// The shape of a contender's points: its corners, about 2 units apart; none for a circle.
///
/// Their mean is the place of the point, also for triangles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape(pub(super) &'static [(f64, f64)]);

#[rustfmt::skip]
impl Shape {
    const CIRCLE: Self = Self(&[]);
    const SQUARE: Self = Self(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]);
    const DIAMOND: Self = Self(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]);
    const UP: Self = Self(&[(0.0, -1.3), (1.1, 0.65), (-1.1, 0.65)]);
    const DOWN: Self = Self(&[(0.0, 1.3), (1.1, -0.65), (-1.1, -0.65)]);
    const LEFT: Self = Self(&[(-1.3, 0.0), (0.65, -1.1), (0.65, 1.1)]);
    const RIGHT: Self = Self(&[(1.3, 0.0), (-0.65, -1.1), (-0.65, 1.1)]);
    const PLUS: Self = Self(&[
        (-0.35, -1.2), (0.35, -1.2), (0.35, -0.35), (1.2, -0.35), (1.2, 0.35), (0.35, 0.35),
        (0.35, 1.2), (-0.35, 1.2), (-0.35, 0.35), (-1.2, 0.35), (-1.2, -0.35), (-0.35, -0.35),
    ]);
    const CROSS: Self = Self(&[
        (-1.1, -0.65), (-0.65, -1.1), (0.0, -0.45), (0.65, -1.1), (1.1, -0.65), (0.45, 0.0),
        (1.1, 0.65), (0.65, 1.1), (0.0, 0.45), (-0.65, 1.1), (-1.1, 0.65), (-0.45, 0.0),
    ]);
    const STAR: Self = Self(&[
        (0.0, -1.4), (0.35, -0.35), (1.4, 0.0), (0.35, 0.35),
        (0.0, 1.4), (-0.35, 0.35), (-1.4, 0.0), (-0.35, -0.35),
    ]);
}

/// Returns a contender's color and shape in every plot.
///
/// This project's contenders have shades of one color, which no other contender has.
pub(crate) const fn look(contender: Name) -> (Hue, Shape) {
    match contender {
        Name::ThisCpu | Name::ThisCpuMalloc => (VERMILION, Shape::CIRCLE),
        Name::ThisCpuCache | Name::ThisCpuFacade | Name::ThisCpuLocal => (RUST, Shape::DIAMOND),
        Name::ThisCpuHardened => (TAN, Shape::SQUARE),
        Name::Atomic | Name::AtomicCas | Name::PrometheusClient => (BLUE, Shape::SQUARE),
        Name::SpinlockFold | Name::CompareTwice | Name::SlubLock | Name::MetricsExporter => {
            (PURPLE, Shape::UP)
        }
        Name::RobustMutex | Name::Ratelimit => (PURPLE, Shape::UP),
        Name::Governor => (GREEN, Shape::DOWN),
        Name::ThisCpuWindow => (RUST, Shape::DIAMOND),
        Name::SysvSemaphore => (SKY, Shape::STAR),
        Name::Dumazet | Name::LimitedAdd | Name::Kamezawa | Name::Jemalloc => (GREEN, Shape::DOWN),
        Name::LiGate | Name::CompareOnce | Name::PerThread64 => (OLIVE, Shape::DIAMOND),
        Name::Snmalloc => (OLIVE, Shape::CROSS),
        Name::Striped | Name::Semaphore | Name::MemcgStock | Name::Rpmalloc | Name::Tower => {
            (SKY, Shape::STAR)
        }
        Name::Section | Name::SlubTid | Name::Uncontended => (WINE, Shape::PLUS),
        Name::Mimalloc => (BLUE, Shape::RIGHT),
        Name::Glibc => (GREY, Shape::LEFT),
        Name::Nothing => (GREY, Shape::CROSS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;

    #[test]
    fn contenders_of_a_plot_differ_in_color_and_shape() {
        for kind in Kind::all() {
            let names = kind.contenders(&Name::ALL);
            for (index, &one) in names.iter().enumerate() {
                for &other in &names[..index] {
                    let ((hue, shape), (other_hue, other_shape)) = (look(one), look(other));
                    let is_apart = hue != other_hue && shape != other_shape;
                    assert!(is_apart, "{}: {one} and {other}", kind.title());
                }
            }
        }
    }

    #[test]
    fn shapes_are_centered_on_their_place() {
        for Shape(corners) in Name::ALL.map(|name| look(name).1) {
            let (x, y) = corners.iter().fold((0.0, 0.0), |sum, at| (sum.0 + at.0, sum.1 + at.1));
            assert!(f64::hypot(x, y) < 1e-9, "{corners:?}: {x}, {y}");
        }
    }

    #[test]
    fn light_colors_are_unique() {
        for (index, one) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.light != one.light), "{one:?}");
        }
    }

    /// Returns WCAG's relative luminance.
    fn luminance(color: u32) -> f64 {
        let [_, channels @ ..] = color.to_be_bytes();
        let linear = channels.map(|channel| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    #[test]
    fn colors_have_enough_contrast() {
        let contrast = |one: u32, other: u32| {
            let (one, other) = (luminance(one), luminance(other));
            (one.max(other) + 0.05) / (one.min(other) + 0.05)
        };
        let (paper, dark_paper) = (PAPER.light, PAPER.dark);
        for hue in ALL.into_iter().filter(|hue| *hue != GRID) {
            let wanted = if [INK, MUTED].contains(&hue) { 4.5 } else { 3.0 };
            assert!(contrast(hue.light, paper) >= wanted, "{hue:?} on white");
            assert!(contrast(hue.dark, dark_paper) >= wanted, "{hue:?} on black");
        }
    }
}
