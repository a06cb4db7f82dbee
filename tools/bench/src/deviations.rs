//! The distances of sums from a possible value, in memory that does not grow with their number.

use serde::{Deserialize, Serialize};

/// The classes of one sign, which double: 1, 2 and 3, 4 to 7, up to the largest `i64`.
const CLASSES: usize = 63;

/// How many sums were right, and how many were too small or too large by how much.
///
/// Distances are counted in classes, each twice as wide as the last. So the size is fixed, and
/// small distances, the usual ones, are exact. The right sums are in the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deviations([u64; 2 * CLASSES + 1]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Class {
    /// The least distance from a possible value; negative where the sums were too small.
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) sums: u64,
}

impl Default for Deviations {
    fn default() -> Self {
        Self([0; 2 * CLASSES + 1])
    }
}

impl Deviations {
    /// Counts a sum that is `distance` above the nearest possible value.
    #[inline]
    pub(crate) fn record(&mut self, distance: i64) {
        // The smallest i64 is beyond the last class by one.
        let index = class_of(distance).max(-(CLASSES as i32));
        self.0[(index + CLASSES as i32) as usize] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }

    /// Returns the classes that have sums, in ascending order of their distances.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        let class = |(index, sums): (i32, u64)| {
            let end = 1_u64 << index.unsigned_abs();
            let (near, far) = ((end / 2) as i64, (end - 1) as i64);
            let (from, to) = match index {
                0.. => (near, far),
                _ if index == -(CLASSES as i32) => (i64::MIN, -near),
                _ => (-far, -near),
            };
            Class { from, to, sums }
        };
        (-(CLASSES as i32)..).zip(self.0).filter(|(_, sums)| *sums != 0).map(class)
    }
}

/// Returns a distance's class from the middle.
///
/// Distances 1, 2 and 4 are in classes 1, 2 and 3.
#[inline]
pub(crate) fn class_of(distance: i64) -> i32 {
    let class = i64::BITS - distance.unsigned_abs().leading_zeros();
    class as i32 * distance.signum() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(distances: &[i64]) -> Vec<(i64, i64, u64)> {
        let mut deviations = Deviations::default();
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
        let mut deviations = Deviations::default();
        [0, 5, -9].into_iter().for_each(|distance| deviations.record(distance));
        deviations.merge(&deviations.clone());
        assert!(deviations.classes().all(|class| class.sums == 2));
        assert_eq!(deviations.classes().count(), 3);
    }

    #[test]
    fn classes_are_on_both_sides_of_0() {
        let classes = [0, 1, 2, 4, 8, -1, -3, -7].map(class_of);
        assert_eq!(classes, [0, 1, 2, 3, 4, -1, -2, -3]);
        assert_eq!((class_of(i64::MAX), class_of(i64::MIN)), (63, -64));
    }
}
