//! Statistics of measurements: medians, extremes, means, and ratios within rounds.

/// The median and the extremes of one value over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `values`, or `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            min: values.iter().copied().reduce(f64::min)?,
            max: values.iter().copied().reduce(f64::max)?,
        })
    }

    /// Returns the spread of a single value, such as a total.
    pub const fn exactly(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }

    /// Divides the medians, and those extremes that give the widest range.
    #[must_use]
    pub fn divided_by(self, other: Self) -> Self {
        Self {
            median: self.median / other.median,
            min: self.min / other.max,
            max: self.max / other.min,
        }
    }
}

/// Returns the middle value, or the mean of the middle two.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let is_even = sorted.len().is_multiple_of(2);
    Some(if is_even { f64::midpoint(sorted[sorted.len() / 2 - 1], upper) } else { upper })
}

/// Returns the ratios of two series, round by round.
///
/// The two values of a round are measured shortly after each other. So a machine that drifts
/// between rounds changes both, and their ratio stays.
pub fn paired_ratios(numerators: &[f64], denominators: &[f64]) -> Vec<f64> {
    let pairs = numerators.iter().zip(denominators);
    pairs.map(|(numerator, denominator)| numerator / denominator).collect()
}

/// Returns the geometric mean of ratios, or `None` if there are none.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn spread_has_a_median_and_extremes() {
        let spread = Spread::of(&[5.0, -1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, -1.0, 5.0));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[7.0]), Some(Spread::exactly(7.0)));
    }

    #[test]
    fn divided_spreads_cover_all_pairs_of_values() {
        let (one, other) = (Spread::of(&[2.0, 4.0, 6.0]), Spread::of(&[1.0, 2.0, 4.0]));
        let ratio = one.unwrap().divided_by(other.unwrap());
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 0.5, 6.0));
    }

    #[test]
    fn paired_ratios_do_not_show_drift() {
        let drifting = [10.0, 20.0, 40.0, 80.0];
        let halves = [5.0, 10.0, 20.0, 40.0];
        assert_eq!(paired_ratios(&halves, &drifting), vec![0.5; 4]);
    }

    #[test]
    fn geometric_mean_cancels_inverse_ratios() {
        let is_close = |ratios: &[f64], expected: f64| {
            geometric_mean(ratios).is_some_and(|mean| (mean - expected).abs() < 1e-12)
        };
        assert_eq!(geometric_mean(&[]), None);
        assert!(is_close(&[1.5], 1.5));
        assert!(is_close(&[0.5, 2.0], 1.0));
        assert!(is_close(&[1.0, 2.0, 4.0], 2.0));
    }
}
