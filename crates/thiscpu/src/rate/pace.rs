//! How fast a rate or a window hands out units.

use std::time::Duration;

use super::error::RateConfigError;

/// A number of units in a period, such as 100 a second.
///
/// ```
/// use std::time::Duration;
/// use thiscpu::Pace;
///
/// const API: Pace = Pace::per_second(100);
/// const LOGINS: Pace = Pace::per(5, Duration::from_secs(15 * 60));
/// assert_eq!(LOGINS.period(), Duration::from_secs(900));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    units: u64,
    /// In nanoseconds, at least 1 and less than 2^63.
    period_ns: u64,
}

impl Pace {
    /// The largest number of units in a period, 2^40.
    pub const UNITS_MAX: u64 = 1 << 40;

    /// Creates a pace of `units` a second.
    ///
    /// # Panics
    ///
    /// If `units` is 0 or above [`UNITS_MAX`](Pace::UNITS_MAX). In a constant this is a compile
    /// error.
    pub const fn per_second(units: u64) -> Pace {
        Pace::per(units, Duration::from_secs(1))
    }

    /// Creates a pace of `units` a minute.
    ///
    /// # Panics
    ///
    /// As [`per_second`](Pace::per_second).
    pub const fn per_minute(units: u64) -> Pace {
        Pace::per(units, Duration::from_secs(60))
    }

    /// Creates a pace of `units` in each `period`.
    ///
    /// # Panics
    ///
    /// Where [`try_per`](Pace::try_per) returns an error. In a constant this is a compile error.
    pub const fn per(units: u64, period: Duration) -> Pace {
        match Pace::try_per(units, period) {
            Ok(pace) => pace,
            Err(error) => panic!("{}", error.message()),
        }
    }

    /// Creates a pace of `units` in each `period`.
    ///
    /// # Errors
    ///
    /// [`RateConfigError`] if `units` is 0 or above [`UNITS_MAX`](Pace::UNITS_MAX), or if `period`
    /// is zero, or 2^63 ns (292 years) or longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use thiscpu::{Pace, RateConfigError};
    ///
    /// assert_eq!(Pace::try_per(1, Duration::ZERO), Err(RateConfigError::ZeroPeriod));
    /// ```
    pub const fn try_per(units: u64, period: Duration) -> Result<Pace, RateConfigError> {
        let period_ns = period.as_nanos();
        match () {
            () if units == 0 => Err(RateConfigError::ZeroUnits),
            () if units > Self::UNITS_MAX => Err(RateConfigError::TooManyUnits),
            () if period_ns == 0 => Err(RateConfigError::ZeroPeriod),
            () if period_ns >> 63 != 0 => Err(RateConfigError::PeriodTooLong),
            () => Ok(Pace { units, period_ns: period_ns as u64 }),
        }
    }

    /// Returns the number of units in a period.
    pub const fn units(self) -> u64 {
        self.units
    }

    /// Returns the period.
    pub const fn period(self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// Returns the period in nanoseconds.
    pub(super) const fn period_ns(self) -> u64 {
        self.period_ns
    }
}
