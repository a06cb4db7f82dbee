//! Windows: how far a lane's count may drift before it must be published.
//!
//! A window is one word. Its low 6 bits are a shift. The word itself, read as a count, is the last
//! count of the window, and it holds the `1 << shift` counts up to there. So a section tests it
//! with a subtraction and a shift. A section that only adds tests the upper end with one
//! comparison, which leaves out the last count. The word 0, which a new lane has, holds only the
//! count 0.

/// The smallest window with room around any count, given that windows end 64 apart.
const SHIFT_MIN: u32 = 8;
/// The largest window, which keeps the slack of 2^14 lanes far from an overflow.
const SHIFT_MAX: u32 = 42;
/// The largest amount for which a window is moved.
pub(crate) const AMOUNT_MAX: u64 = 1 << (SHIFT_MAX - 2);

pub(crate) const HALF_MIN: u64 = 1 << (SHIFT_MIN - 1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) u64);

/// An estimate: the value is within `slack` of `value`.
///
/// Each window contributes one to the published state, which is the sum over all windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) value: i64,
    pub(crate) slack: u64,
}

impl Window {
    /// Returns a window around `count` with at least `half` minus 64 counts on either side.
    pub(crate) fn around(count: i64, half: u64) -> Window {
        let shift = (half.next_power_of_two().trailing_zeros() + 1).clamp(SHIFT_MIN, SHIFT_MAX);
        let end = (count as u64).wrapping_add(1 << (shift - 1));
        Window((end & !63) | u64::from(shift))
    }

    pub(crate) fn holds(self, count: i64) -> bool {
        self.0.wrapping_sub(count as u64) >> (self.0 & 63) == 0
    }

    /// Returns half the number of counts that the window holds.
    pub(crate) fn half(self) -> u64 {
        1 << (self.0 & 63) >> 1
    }

    pub(crate) fn estimate(self) -> Estimate {
        Estimate { value: self.0.wrapping_sub(self.half()) as i64, slack: self.half() }
    }
}

impl Estimate {
    /// Returns the smallest estimate that covers both.
    pub(crate) fn cover(self, other: Estimate) -> Estimate {
        // The windows of one lane are near each other whatever its counts: less than 2^63 apart.
        let distance = other.value.wrapping_sub(self.value);
        let value = self.value.wrapping_add(distance / 2);
        let slack = self.slack.max(other.slack) + distance.unsigned_abs().div_ceil(2);
        Estimate { value, slack }
    }

    /// Returns the amounts to add to `self` to get `to`; wraps.
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
    fn window_of_new_lane_holds_only_zero() {
        let new = Window(0);
        assert!(new.holds(0) && !new.holds(1) && !new.holds(-1) && !new.holds(64));
        assert_eq!(new.estimate(), Estimate { value: 0, slack: 0 });
    }

    #[test]
    fn window_has_room_on_both_sides() {
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
    fn estimate_covers_its_window_exactly() {
        for count in COUNTS {
            let window = Window::around(count, 1000);
            let Estimate { value, slack } = window.estimate();
            let low = value.wrapping_sub(slack as i64);
            let high = value.wrapping_add(slack as i64);
            assert!(window.holds(low.wrapping_add(1)) && !window.holds(low));
            assert!(window.holds(high) && !window.holds(high.wrapping_add(1)));
        }
    }

    #[test]
    fn cover_contains_both_estimates() {
        let small = Window::around(0, 128).estimate();
        let large = Window::around(-5000, 1024).estimate();
        for cover in [small.cover(large), large.cover(small)] {
            for part in [small, large] {
                assert!(cover.value - cover.slack as i64 <= part.value - part.slack as i64);
                assert!(cover.value + cover.slack as i64 >= part.value + part.slack as i64);
            }
        }
    }
}
