//! The distances of sums from a possible value, in memory that does not grow with their number.

/// The classes of one sign, which double: 1, 2 and 3, 4 to 7, up to the largest `i64`.
const CLASSES: usize = 63;

/// How many sums were right, and how many were too small or too large by how much.
///
/// Distances are counted in classes, each twice as wide as the last. So the size is fixed, and
/// small distances, the usual ones, are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deviations {
    right: u64,
    /// Class `n` has the distances from `2^n` to `2^(n + 1) - 1`.
    below: [u64; CLASSES],
    above: [u64; CLASSES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// The least distance; negative where the sums were too small.
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) sums: u64,
}

impl Deviations {
    pub(crate) const fn new() -> Self {
        Self { right: 0, below: [0; CLASSES], above: [0; CLASSES] }
    }

    /// Counts a sum that is `distance` above the nearest possible value.
    #[inline]
    pub(crate) fn record(&mut self, distance: i64) {
        let Some(power) = distance.unsigned_abs().checked_ilog2() else {
            self.right += 1;
            return;
        };
        let side = if distance < 0 { &mut self.below } else { &mut self.above };
        // The smallest i64 is beyond the last class by one.
        side[(power as usize).min(CLASSES - 1)] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.right += other.right;
        let own = self.below.iter_mut().chain(&mut self.above);
        own.zip(other.below.iter().chain(&other.above)).for_each(|(own, other)| *own += other);
    }

    /// Returns the classes that have sums, in ascending order of their distances.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        let ends = |power: usize| (1_i64 << power, ((1_u64 << (power + 1)) - 1) as i64);
        let below = self.below.iter().enumerate().rev().map(move |(power, &sums)| {
            let (near, far) = ends(power);
            let from = if power == CLASSES - 1 { i64::MIN } else { -far };
            Class { from, to: -near, sums }
        });
        let right = Class { from: 0, to: 0, sums: self.right };
        let above = self.above.iter().enumerate().map(move |(power, &sums)| {
            let (from, to) = ends(power);
            Class { from, to, sums }
        });
        below.chain([right]).chain(above).filter(|class| class.sums != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(distances: &[i64]) -> Vec<(i64, i64, u64)> {
        let mut deviations = Deviations::new();
        distances.iter().for_each(|&distance| deviations.record(distance));
        deviations.classes().map(|class| (class.from, class.to, class.sums)).collect()
    }

    #[test]
    fn distances_are_counted_in_their_classes() {
        assert_eq!(classes(&[]), []);
        assert_eq!(classes(&[0, 0, 1, -1]), [(-1, -1, 1), (0, 0, 2), (1, 1, 1)]);
        assert_eq!(classes(&[2, 3, 4, 7, 8]), [(2, 3, 2), (4, 7, 2), (8, 15, 1)]);
        assert_eq!(classes(&[-2, -3, -4]), [(-7, -4, 1), (-3, -2, 2)]);
        let widest = (1 << 62, i64::MAX, 1);
        assert_eq!(classes(&[i64::MIN, i64::MAX]), [(i64::MIN, -(1 << 62), 1), widest]);
    }

    #[test]
    fn merged_counts_are_added_up() {
        let mut deviations = Deviations::new();
        [0, 5, -9].into_iter().for_each(|distance| deviations.record(distance));
        deviations.merge(&deviations.clone());
        assert!(deviations.classes().all(|class| class.sums == 2));
        assert_eq!(deviations.classes().count(), 3);
    }
}
