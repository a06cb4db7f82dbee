//! Medians, extremes and means of values.

/// Returns the middle value, or the mean of the middle two.
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

/// Returns the geometric mean of ratios.
pub(crate) fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-12
    }

    #[test]
    fn means_and_medians_are_right() {
        assert_eq!(geometric_mean(&[]), None);
        assert!(is_close(geometric_mean(&[1.5]).unwrap(), 1.5));
        // Twice as fast and twice as slow cancel out.
        assert!(is_close(geometric_mean(&[0.5, 2.0]).unwrap(), 1.0));
        assert!(is_close(geometric_mean(&[1.0, 2.0, 4.0]).unwrap(), 2.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }
}
