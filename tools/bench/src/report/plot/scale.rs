//! The scale of figures: linear from 0, or logarithmic where contenders differ too much for that.

use plotters::coord::{
    ranged1d::{BoldPoints, Ranged as _},
    types::RangedCoordf64,
};

/// The ratio of the largest to the smallest figure from which a scale is logarithmic.
///
/// On a linear scale, a twentieth of the largest figure is hardly visible.
const LOGARITHMIC_FROM: f64 = 20.0;

/// The places of figures, and the labels of the scale.
#[derive(Debug)]
pub(crate) struct Scale {
    is_logarithmic: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Makes a scale that has a place for all of `values`, which include the ends of spreads.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        if least > 0.0 && least.is_finite() && most / least >= LOGARITHMIC_FROM {
            // It goes a tenth of a decade beyond the ends, so that no point is on the frame.
            return Self {
                is_logarithmic: true,
                from: least.log10() - 0.1,
                to: most.log10() + 0.1,
            };
        }
        let (least, most) = (least.min(0.0), most.max(0.0));
        let margin = if most > least { (most - least) * 0.06 } else { 1.0 };
        let from = if least < 0.0 { least - margin } else { 0.0 };
        Self { is_logarithmic: false, from, to: most + margin }
    }

    pub(crate) fn is_logarithmic(&self) -> bool {
        self.is_logarithmic
    }

    pub(crate) fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Returns the place of a figure: the lower end, if it has none on a logarithmic scale.
    pub(crate) fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.log10().max(self.from) } else { value }
    }

    /// Returns the figures of the scale's labels, with their places.
    pub(crate) fn ticks(&self, at_most: usize) -> Vec<(f64, f64)> {
        let values = if self.is_logarithmic {
            self.ticks_of_decades(at_most)
        } else {
            RangedCoordf64::from(self.from..self.to).key_points(BoldPoints(at_most))
        };
        values.into_iter().map(|value| (self.place(value), value)).collect()
    }

    /// Returns the first of three sets that fits: 1, 2, 5, 10, or 1, 3, 10, or powers of ten.
    fn ticks_of_decades(&self, at_most: usize) -> Vec<f64> {
        let decades = self.from.floor() as i32..=self.to.ceil() as i32;
        let is_inside = |value: &f64| (self.from..=self.to).contains(&value.log10());
        let ticks = |steps: &[f64]| -> Vec<f64> {
            let of_decade = |decade: i32| steps.iter().map(move |step| step * 10_f64.powi(decade));
            decades.clone().flat_map(of_decade).filter(is_inside).collect()
        };
        let sets: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
        let fitting = sets.iter().map(|steps| ticks(steps)).find(|ticks| ticks.len() <= at_most);
        fitting.unwrap_or_else(|| {
            let all = ticks(&[1.0]);
            let each = all.len().div_ceil(at_most.max(1));
            all.into_iter().step_by(each).collect()
        })
    }
}

/// Formats the label of a figure, as short as possible.
pub(crate) fn tick(value: f64, unit: &str) -> String {
    let (factor, unit) = match unit {
        "ns" if value.abs() >= 1e6 => (1e-6, "ms"),
        "ns" if value.abs() >= 1e3 => (1e-3, "µs"),
        "bytes" if value.abs() >= 1e6 => (1e-6, "MB"),
        "bytes" if value.abs() >= 1e3 => (1e-3, "kB"),
        "percent" => (1.0, "%"),
        "ratio" | "count" => (1.0, ""),
        other => (1.0, other),
    };
    // Rounded, to hide the errors of sums of decimal fractions.
    let number = (value * factor * 1e6).round() / 1e6;
    format!("{number} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64]) -> Scale {
        Scale::of(values.iter().copied())
    }

    fn ticks(scale: &Scale, at_most: usize) -> Vec<f64> {
        scale.ticks(at_most).into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn scale_is_linear_from_0_for_similar_figures() {
        let scale = scale(&[3.0, 59.0]);
        assert!(!scale.is_logarithmic());
        assert_eq!(scale.ends().0, 0.0);
        assert!(scale.ends().1 > 59.0);
        assert_eq!(scale.place(7.0), 7.0);
        assert_eq!(ticks(&scale, 5), [0.0, 20.0, 40.0, 60.0]);
    }

    #[test]
    fn scale_is_logarithmic_for_figures_that_differ_much() {
        let scale = scale(&[1.0, 100.0]);
        assert!(scale.is_logarithmic());
        let (from, to) = scale.ends();
        let middle = scale.place(10.0);
        assert!((middle - (from + to) / 2.0).abs() < 1e-9);
        assert_eq!(ticks(&scale, 7), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(&scale, 5), [1.0, 3.0, 10.0, 30.0, 100.0]);
        assert_eq!(ticks(&scale, 3), [1.0, 10.0, 100.0]);
        assert_eq!(ticks(&scale, 2), [1.0, 100.0]);
    }

    #[test]
    fn scale_has_places_for_negative_and_equal_figures() {
        let negative = scale(&[-4.0, 400.0]);
        assert!(!negative.is_logarithmic() && negative.ends().0 < -4.0);
        for equal in [scale(&[0.0]), scale(&[5.0]), scale(&[]), scale(&[f64::NAN, f64::INFINITY])] {
            let (from, to) = equal.ends();
            assert!(from < to && from.is_finite() && to.is_finite(), "{equal:?}");
        }
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(tick(0.30000000000000004, "ns"), "0.3 ns");
        assert_eq!(tick(20_000.0, "ns"), "20 µs");
        assert_eq!(tick(2_000_000.0, "bytes"), "2 MB");
        assert_eq!(tick(-5.0, "percent"), "-5 %");
        assert_eq!(tick(3.0, "count"), "3");
    }
}
