//! Sample points and weights: when a block is sampled, and how many blocks it then stands for.
//!
//! A block of `n` bytes has `n + 1` units. Each unit is a sample point with the same small
//! probability, so the distance to the next point is geometric. A block with at least one point is
//! sampled. That has the probability `p = 1 - exp(-(n + 1) / interval)`, whatever was allocated
//! before. A sampled block stands for `1 / p` blocks, which makes all sums unbiased: a block adds 0
//! with probability `1 - p` and `1 / p` with probability `p`.
//!
//! The functions below replace those of libm, which this crate does not link.

use crate::random;

/// The shortest and the longest interval, in bytes. With 1, almost every block is sampled.
pub(super) const INTERVAL_MIN: u64 = 1;
pub(super) const INTERVAL_MAX: u64 = 1 << 40;
/// Objects are counted in this fraction of one.
pub(super) const OBJECT: u64 = 1 << 16;

/// How many blocks and bytes a sampled block stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// In units of 1 / [`OBJECT`].
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

/// Returns the units of a block of `size` bytes.
///
/// One more than its bytes, so that blocks of no bytes are sampled too.
pub(super) fn units(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX).saturating_add(1)
}

/// Draws the number of units up to and including the next sample point.
pub(super) fn draw(interval: u64) -> i64 {
    // Uniform in (0, 1], of 53 bits.
    let uniform = ((random::next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    // At most 37 intervals, so it fits.
    (-(interval as f64) * ln(uniform)) as i64 + 1
}

/// Returns the weight of a sampled block of `size` bytes.
pub(super) fn weight(size: usize, interval: u64) -> Weight {
    let probability = one_minus_exp(units(size) as f64 / interval as f64);
    Weight {
        objects: (OBJECT as f64 / probability + 0.5) as u64,
        bytes: (size as f64 / probability + 0.5) as u64,
    }
}

/// Returns the natural logarithm of a positive, normal number.
fn ln(x: f64) -> f64 {
    const MANTISSA_BITS: u32 = 52;
    const ONE: u64 = 1.0_f64.to_bits();
    let bits = x.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | ONE);
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln(m) = 2 artanh((m - 1) / (m + 1)), whose series has only odd powers.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let series = (0..11).rev().fold(0.0, |sum, k| sum * s * s + 1.0 / f64::from(2 * k + 1));
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * s * series
}

/// Returns 1 - exp(-x) for x >= 0, exact to the last digits for small x as well.
fn one_minus_exp(x: f64) -> f64 {
    if x > 40.0 {
        return 1.0;
    }
    // Halved until the series converges fast: y is below 1 / 8.
    let halvings = (0..).find(|&halvings| x / f64::from(1_u32 << halvings) < 0.125).unwrap_or(9);
    let y = x / f64::from(1_u32 << halvings);
    // y - y^2/2! + y^3/3! - ...
    let series = (2..=14).rev().fold(1.0, |sum, k| 1.0 - y / f64::from(k) * sum);
    // 1 - exp(-2y) = e (2 - e), where e = 1 - exp(-y).
    (0..halvings).fold(y * series, |e, _| e * (2.0 - e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1e-14 * expected.abs()
    }

    #[test]
    fn functions_are_exact_to_14_digits() {
        let mut x = 1e-16;
        while x < 1.0 {
            assert!(is_close(ln(x), x.ln()), "ln {x}: {} instead of {}", ln(x), x.ln());
            x *= 1.37;
        }
        assert_eq!(ln(1.0), 0.0);
        let mut x = 1e-12;
        while x < 100.0 {
            let (found, expected) = (one_minus_exp(x), -f64::exp_m1(-x));
            assert!(is_close(found, expected), "{x}: {found} instead of {expected}");
            x *= 1.19;
        }
    }

    #[test]
    fn weights_are_inverse_probabilities() {
        // Blocks far above the interval are always sampled.
        assert_eq!(weight(1 << 30, 1 << 10), Weight { objects: OBJECT, bytes: 1 << 30 });
        // Blocks far below it are sampled in proportion to their units.
        let small = weight(15, 1 << 20);
        let expected = (1 << 20) as f64 / 16.0 + 0.5;
        assert!((small.objects as f64 / OBJECT as f64 - expected).abs() < 0.01, "{small:?}");
        assert!((small.bytes as f64 - 15.0 * expected).abs() < 1.0, "{small:?}");
        assert_eq!(weight(0, 1 << 20).bytes, 0);
    }

    #[test]
    fn distances_have_the_mean_and_the_spread_of_a_geometric_distribution() {
        const DRAWS: usize = 200_000;
        const INTERVAL: f64 = 1024.0;
        let draws: Vec<f64> = (0..DRAWS).map(|_| draw(INTERVAL as u64) as f64).collect();
        let mean = draws.iter().sum::<f64>() / DRAWS as f64;
        let short = draws.iter().filter(|&&draw| draw <= INTERVAL).count() as f64 / DRAWS as f64;
        // 6 standard deviations.
        assert!((mean - INTERVAL - 0.5).abs() < 6.0 * INTERVAL / (DRAWS as f64).sqrt(), "{mean}");
        assert!((short - (1.0 - (-1.0_f64).exp())).abs() < 0.0066, "{short}");
        assert!(draws.iter().all(|&draw| draw >= 1.0));
    }
}
