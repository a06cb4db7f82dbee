//! The few statistics a report needs: medians, extremes, and ratios taken pair by pair.

/// The middle and the ends of one value measured in several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// Half of the rounds are at or below it.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Describes `values`; nothing to describe gives none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            min: values.iter().copied().reduce(f64::min)?,
            max: values.iter().copied().reduce(f64::max)?,
        })
    }

    /// A value that has no spread, such as a total.
    pub(crate) const fn exactly(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

/// The middle value, or the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(sorted[sorted.len() / 2 - 1], upper)
    })
}

/// The ratios of two series, round by round.
///
/// The two values of a round were measured shortly after each other, so a machine that drifts
/// between rounds moves both, and their ratio stays.
pub(crate) fn paired_ratios(numerators: &[f64], denominators: &[f64]) -> Vec<f64> {
    numerators
        .iter()
        .zip(denominators)
        .map(|(numerator, denominator)| numerator / denominator)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn a_spread_has_a_middle_and_ends() {
        let spread = Spread::of(&[5.0, -1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, -1.0, 5.0));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[7.0]), Some(Spread::exactly(7.0)));
    }

    #[test]
    fn paired_ratios_do_not_see_drift() {
        let drifting = [10.0, 20.0, 40.0, 80.0];
        let half_of_it = [5.0, 10.0, 20.0, 40.0];
        assert_eq!(paired_ratios(&half_of_it, &drifting), vec![0.5; 4]);
    }
}
