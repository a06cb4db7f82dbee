//! The terms of a rate, and the arithmetic of a bucket, in whole numbers.
//!
//! A bucket counts in *quanta*. With the pace in lowest terms, `p` units in `q` nanoseconds, a
//! nanosecond earns `p` quanta and a unit costs `q`. So nothing is ever rounded.
//!
//! A bucket is one number, its *origin*: the quanta that the pace had earned by the time at which
//! the bucket would have been empty. At the time `t` the bucket holds `t * p - origin` quanta, but
//! at most its cap. A bucket that was full needs no stored time for that.
//!
//! | number | at most | reason |
//! |---|---|---|
//! | `p`, and the burst in units | 2^40 | `UNITS_MAX`, `BURST_MAX` |
//! | `q`, and the time in nanoseconds | 2^63 - 1 | `Pace`, `CLOCK_MONOTONIC` |
//! | an origin, either sign | 2^103 | their products |

use std::time::Duration;

use super::error::RateConfigError;
use super::pace::Pace;

/// The largest burst.
pub(super) const BURST_MAX: u64 = 1 << 40;

/// What a rate promises. All numbers are at most those of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The quanta that a nanosecond earns.
    pub(super) per_ns: u64,
    /// The quanta that a unit costs.
    pub(super) unit: u64,
    /// In units.
    pub(super) burst: u64,
    /// The most units that lanes hold, taken or not, since they were last seen.
    pub(super) share: u64,
}

/// Returns the greatest common divisor of two numbers that are not 0.
const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Terms {
    /// Creates the terms of a rate whose lanes have an eighth of the burst.
    pub(super) const fn new(pace: Pace, burst: u64) -> Result<Terms, RateConfigError> {
        match () {
            () if burst == 0 => Err(RateConfigError::ZeroBurst),
            () if burst > BURST_MAX => Err(RateConfigError::BurstTooLarge),
            () => {
                let divisor = gcd(pace.units(), pace.period_ns());
                let (per_ns, unit) = (pace.units() / divisor, pace.period_ns() / divisor);
                Ok(Terms { per_ns, unit, burst, share: burst / 8 })
            }
        }
    }

    /// Returns these terms with another share for lanes.
    pub(super) const fn with_share(self, share: u64) -> Result<Terms, RateConfigError> {
        if share > self.burst / 8 {
            return Err(RateConfigError::ShareTooLarge);
        }
        Ok(Terms { share, ..self })
    }

    /// Returns these terms with another burst, and an eighth of it or `share_max` for lanes.
    pub(super) fn with_burst(self, burst: u64, share_max: u64) -> Result<Terms, RateConfigError> {
        match () {
            () if burst == 0 => Err(RateConfigError::ZeroBurst),
            () if burst > BURST_MAX => Err(RateConfigError::BurstTooLarge),
            () => Ok(Terms { burst, share: share_max.min(burst / 8), ..self }),
        }
    }

    /// Returns these terms with another pace.
    pub(super) const fn with_pace(self, pace: Pace) -> Terms {
        let divisor = gcd(pace.units(), pace.period_ns());
        let (per_ns, unit) = (pace.units() / divisor, pace.period_ns() / divisor);
        Terms { per_ns, unit, ..self }
    }

    /// Returns `units` in quanta.
    pub(super) const fn quanta(&self, units: u64) -> i128 {
        units as i128 * self.unit as i128
    }

    /// Returns the quanta that the pace has earned by `time`.
    pub(super) const fn earned(&self, time: u64) -> i128 {
        time as i128 * self.per_ns as i128
    }

    /// Returns the origin of a bucket that is full at every time.
    pub(super) const fn full(&self) -> i128 {
        -self.quanta(self.burst)
    }

    /// Returns the quanta of a bucket at `time` that holds at most `cap` units.
    pub(super) fn level(&self, origin: i128, time: u64, cap: u64) -> i128 {
        (self.earned(time) - origin).min(self.quanta(cap))
    }

    /// Returns the origin of a bucket that holds `level` quanta at `time`.
    pub(super) fn origin(&self, time: u64, level: i128) -> i128 {
        self.earned(time) - level
    }

    /// Returns the whole units in `level` quanta.
    pub(super) fn units(&self, level: i128) -> u64 {
        match u64::try_from(level) {
            // Much cheaper than a division of 128 bits.
            Ok(level) => level / self.unit,
            Err(_) if level < 0 => 0,
            Err(_) => (level as u128 / u128::from(self.unit)) as u64,
        }
    }

    /// Returns the time in which the pace earns `quanta`, rounded up; zero if that is negative.
    pub(super) fn time_to_earn(&self, quanta: i128) -> Duration {
        Duration::from_nanos(match u64::try_from(quanta) {
            Ok(quanta) if self.per_ns == 1 => quanta,
            Ok(quanta) => quanta.div_ceil(self.per_ns),
            Err(_) if quanta < 0 => 0,
            Err(_) => {
                let time = (quanta as u128).div_ceil(u128::from(self.per_ns));
                u64::try_from(time).unwrap_or(u64::MAX)
            }
        })
    }

    /// Returns `level` quanta of the terms `old` in quanta of these, rounded down.
    ///
    /// It is at most the burst.
    pub(super) fn convert(&self, level: i128, old: &Terms) -> i128 {
        let (units, rest) = (level.div_euclid(old.unit.into()), level.rem_euclid(old.unit.into()));
        // The rest is less than a unit, and a unit less than 2^63, so the product is below 2^126.
        let rest = rest * i128::from(self.unit) / i128::from(old.unit);
        let units = units.clamp(-i128::from(BURST_MAX), i128::from(BURST_MAX));
        (units * i128::from(self.unit) + rest).min(self.quanta(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(units: u64, period: Duration, burst: u64) -> Terms {
        Terms::new(Pace::per(units, period), burst).unwrap()
    }

    const LONGEST: Duration = Duration::from_nanos(u64::MAX >> 1);

    #[test]
    fn numbers_fit_at_the_edges() {
        let edges = [
            terms(Pace::UNITS_MAX, Duration::from_nanos(1), BURST_MAX),
            terms(Pace::UNITS_MAX - 1, LONGEST, BURST_MAX),
            terms(1, LONGEST, BURST_MAX),
            terms(1, LONGEST, 1),
            terms(7, Duration::from_nanos(3), 1),
        ];
        for terms in edges {
            for time in [0, 1, u64::MAX >> 1] {
                let full = terms.level(terms.full(), time, terms.burst);
                assert_eq!(full, terms.quanta(terms.burst));
                assert_eq!(terms.units(full), terms.burst);
                assert_eq!(terms.level(terms.origin(time, 0), time, terms.burst), 0);
                let origins = [terms.full(), terms.origin(time, 0), terms.origin(time, full)];
                assert!(origins.iter().all(|origin| (-1 << 103..1 << 103).contains(origin)));
            }
        }
        assert_eq!(edges[2].time_to_earn(edges[2].quanta(BURST_MAX)), Duration::from_nanos(!0));
        assert_eq!(edges[2].time_to_earn(edges[2].quanta(1)), LONGEST);
    }

    #[test]
    fn pace_is_exact_over_centuries() {
        // Seven in three nanoseconds: after any time the floor is exact.
        let terms = terms(7, Duration::from_nanos(3), BURST_MAX);
        for time in [1, 2, 3, 4, 1_000_000_007] {
            let level = terms.level(terms.origin(0, 0), time, BURST_MAX);
            assert_eq!(terms.units(level), time * 7 / 3);
        }
        assert_eq!(terms.time_to_earn(terms.quanta(7)), Duration::from_nanos(3));
        assert_eq!(terms.time_to_earn(terms.quanta(8)), Duration::from_nanos(4));
    }

    #[test]
    fn conversion_keeps_units_and_rounds_down() {
        let second = Duration::from_secs(1);
        let (old, new) = (terms(3, second, 100), terms(700, second, 50));
        assert_eq!(new.units(new.convert(old.quanta(20), &old)), 20);
        assert_eq!(new.units(new.convert(old.quanta(90), &old)), 50);
        assert_eq!(new.convert(old.quanta(5) - 1, &old), new.quanta(5) - 1);
        let long = terms(1, LONGEST, BURST_MAX);
        for level in [long.quanta(BURST_MAX), long.quanta(1) - 1, -1] {
            let there = new.convert(level, &long);
            assert!(there <= new.quanta(50) && there >= -new.quanta(1));
            assert!(long.convert(there, &new) <= level.max(0));
        }
    }
}
