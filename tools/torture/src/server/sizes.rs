//! Sizes of blocks, as programs request them.

use std::ops::RangeInclusive;

use fastrand::Rng;

/// Returns a size from a range in which each doubling is as likely as every other.
pub(super) fn spread(random: &mut Rng, sizes: RangeInclusive<usize>) -> usize {
    let (low, high) = (*sizes.start() as f64, *sizes.end() as f64);
    let size = (low.ln() + random.f64() * (high / low).ln()).exp();
    (size as usize).clamp(*sizes.start(), *sizes.end())
}

/// Returns a size as servers request them: mostly small, a few of up to 1 MiB, sometimes 0.
pub(super) fn mixed(random: &mut Rng) -> usize {
    match random.u8(..) {
        0 => 0,
        1..230 => spread(random, 1..=1_000),
        230..254 => spread(random, 1_000..=32_000),
        _ => spread(random, 32_000..=1 << 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_their_range() {
        let mut random = Rng::with_seed(1);
        let sizes: Vec<_> = (0..10_000).map(|_| spread(&mut random, 33..=66)).collect();
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&33), Some(&65)));
        assert!((0..10_000).all(|_| mixed(&mut random) <= 1 << 20));
    }
}
