//! Of several values: the middle one, the ends, the mean of ratios.

/// The middle value, or the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let even = sorted.len().is_multiple_of(2);
    Some(if even { f64::midpoint(sorted[sorted.len() / 2 - 1], upper) } else { upper })
}

pub(crate) fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

pub(crate) fn largest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// What each ratio would be if all were the same and their product what it is.
pub(crate) fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < 1e-12
    }

    #[test]
    fn means_and_medians() {
        assert_eq!(geometric_mean(&[]), None);
        assert!(is(geometric_mean(&[1.5]).unwrap(), 1.5));
        // Twice as fast and twice as slow come to nothing.
        assert!(is(geometric_mean(&[0.5, 2.0]).unwrap(), 1.0));
        assert!(is(geometric_mean(&[1.0, 2.0, 4.0]).unwrap(), 2.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }
}
