//! How far a lane's count may drift before somebody publishes it.
//!
//! A window is one word: the low 6 bits are a shift, and the word itself, read as a count, is where
//! the window begins; it holds the `1 << shift` counts from there on. A section therefore tests it
//! with a subtraction and a shift. The zero word, which a fresh lane has, holds only the count 0.

/// The smallest window that leaves room around any count, given that windows begin 64 apart.
const SHIFT_MIN: u32 = 8;
/// The largest; larger adds use the slow lane. Keeps the slack of 2^14 lanes far from overflow.
const SHIFT_MAX: u32 = 42;
/// The largest amount that a window is made for.
pub(crate) const AMOUNT_MAX: u64 = 1 << (SHIFT_MAX - 2);

/// Half the size of the smallest window.
pub(crate) const HALF_MIN: u64 = 1 << (SHIFT_MIN - 1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) u64);

/// What a window, or a set of windows, contributes to the published value: the truth is within
/// `slack` of `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) value: i64,
    pub(crate) slack: u64,
}

impl Window {
    /// A window with `count` near its middle and at least `half` minus 64 counts on either side.
    pub(crate) fn around(count: i64, half: u64) -> Window {
        let shift = (half.next_power_of_two().trailing_zeros() + 1).clamp(SHIFT_MIN, SHIFT_MAX);
        let begin = (count as u64).wrapping_sub(1 << (shift - 1));
        Window((begin & !63) | u64::from(shift))
    }

    pub(crate) fn holds(self, count: i64) -> bool {
        (count as u64).wrapping_sub(self.0) >> (self.0 & 63) == 0
    }

    /// Half the number of counts it holds.
    pub(crate) fn half(self) -> u64 {
        1 << (self.0 & 63) >> 1
    }

    pub(crate) fn estimate(self) -> Estimate {
        Estimate { value: self.0.wrapping_add(self.half()) as i64, slack: self.half() }
    }
}

impl Estimate {
    /// The smallest extent that covers both.
    pub(crate) fn cover(self, other: Estimate) -> Estimate {
        // Windows of one lane lie near each other (a distance is below 2^63), whatever the counts.
        let distance = other.value.wrapping_sub(self.value);
        let value = self.value.wrapping_add(distance / 2);
        let slack = self.slack.max(other.slack) + distance.unsigned_abs().div_ceil(2);
        Estimate { value, slack }
    }

    /// What must be added to get from `self` to `to`; wraps.
    pub(crate) fn delta(self, to: Estimate) -> Estimate {
        Estimate {
            value: to.value.wrapping_sub(self.value),
            slack: to.slack.wrapping_sub(self.slack),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: [i64; 9] =
        [0, 1, -1, 63, 64, i64::MAX, i64::MIN, 1_234_567_890_123, -987_654_321];

    #[test]
    fn a_fresh_lane_holds_only_zero() {
        let fresh = Window(0);
        assert!(fresh.holds(0) && !fresh.holds(1) && !fresh.holds(-1) && !fresh.holds(64));
        assert_eq!(fresh.estimate(), Estimate { value: 0, slack: 0 });
    }

    #[test]
    fn a_window_leaves_room_on_both_sides() {
        for count in COUNTS {
            for half in [HALF_MIN, 1000, 1024, 1 << 40, AMOUNT_MAX * 2] {
                let window = Window::around(count, half);
                let room = half as i64 - 64;
                assert!(window.holds(count.wrapping_add(room)), "{count} {half}");
                assert!(window.holds(count.wrapping_sub(room)), "{count} {half}");
                assert!(!window.holds(count.wrapping_add(2 * window.half() as i64 + 64)));
            }
        }
    }

    #[test]
    fn an_extent_covers_its_window_exactly() {
        for count in COUNTS {
            let window = Window::around(count, 1000);
            let Estimate { value, slack } = window.estimate();
            let low = value.wrapping_sub(slack as i64);
            let high = value.wrapping_add(slack as i64);
            assert!(window.holds(low) && !window.holds(low.wrapping_sub(1)));
            assert!(window.holds(high.wrapping_sub(1)) && !window.holds(high));
        }
    }

    #[test]
    fn a_hull_covers_both() {
        let near = Window::around(0, 128).estimate();
        let far = Window::around(-5000, 1024).estimate();
        for cover in [near.cover(far), far.cover(near)] {
            for part in [near, far] {
                assert!(cover.value - cover.slack as i64 <= part.value - part.slack as i64);
                assert!(cover.value + cover.slack as i64 >= part.value + part.slack as i64);
            }
        }
    }
}
