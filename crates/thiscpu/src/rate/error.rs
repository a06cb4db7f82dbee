//! Why a rate handed out nothing, and why it cannot be made.

use std::fmt;
use std::time::Duration;

/// The error of a refused call.
///
/// A [`Rate`](super::Rate) or [`RateWindow`](super::RateWindow) refuses it, and nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateError {
    /// Fewer units were available than requested, or they are promised to a waiter.
    Exceeded {
        /// The number of units that were available, at one instant of the refused call.
        available: u64,
        /// After this time enough units are available, if no other call takes them.
        retry_after: Duration,
    },
    /// More units were requested than can ever be available at once.
    AboveBurst {
        /// The burst of the rate, or the limit of the window.
        burst: u64,
    },
    /// No units were requested.
    ZeroUnits,
    /// The rate is [closed](super::Rate::close): it will never hand out units again.
    Closed,
}

impl RateError {
    /// Returns after what time to try again; `None` if that can never succeed.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            RateError::Exceeded { retry_after, .. } => Some(retry_after),
            _ => None,
        }
    }

    /// Returns how many units were available to the refused call; 0 if that is not known.
    pub fn available(self) -> u64 {
        match self {
            RateError::Exceeded { available, .. } => available,
            _ => 0,
        }
    }
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RateError::Exceeded { available, retry_after } => write!(
                f,
                "rate exceeded: only {available} units are available; try again in \
                 {retry_after:?}"
            ),
            RateError::AboveBurst { burst } => write!(
                f,
                "cannot acquire so many units: the rate never has more than {burst} at once; ask \
                 for fewer, or raise its burst"
            ),
            RateError::ZeroUnits => {
                f.write_str("cannot acquire 0 units: nothing was requested; ask for 1 or more")
            }
            RateError::Closed => f.write_str("rate closed: it hands out no more units"),
        }
    }
}

impl std::error::Error for RateError {}

/// The error of a pace, burst, limit or share that cannot be. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateConfigError {
    /// The pace has no units.
    ZeroUnits,
    /// The pace has more than [`Pace::UNITS_MAX`](super::Pace::UNITS_MAX) units.
    TooManyUnits,
    /// The period is zero.
    ZeroPeriod,
    /// The period is 2^63 ns or longer.
    PeriodTooLong,
    /// The period of a window is shorter than 64 ns.
    PeriodTooShort,
    /// The burst is 0.
    ZeroBurst,
    /// The burst is above [`Rate::BURST_MAX`](super::Rate::BURST_MAX).
    BurstTooLarge,
    /// The lanes' share is above an eighth of the burst.
    ShareTooLarge,
}

impl RateConfigError {
    /// Returns the message, also for a panic in a constant.
    pub(super) const fn message(self) -> &'static str {
        match self {
            RateConfigError::ZeroUnits => {
                "cannot set a pace of 0 units: no unit would ever come; close the rate instead"
            }
            RateConfigError::TooManyUnits => {
                "cannot set the pace: it has more than 2^40 units; use a shorter period"
            }
            RateConfigError::ZeroPeriod => {
                "cannot set the pace: its period is zero; use 1 ns or more"
            }
            RateConfigError::PeriodTooLong => {
                "cannot set the pace: its period is 292 years or longer; use a shorter one"
            }
            RateConfigError::PeriodTooShort => {
                "cannot make the window: it is shorter than 64 ns; use a longer one"
            }
            RateConfigError::ZeroBurst => {
                "cannot set a burst of 0: no call would ever succeed; use 1 or more"
            }
            RateConfigError::BurstTooLarge => {
                "cannot set the burst: it is above 2^40 units; use larger units"
            }
            RateConfigError::ShareTooLarge => {
                "cannot set the lanes' share: it is above an eighth of the burst; use less"
            }
        }
    }
}

impl fmt::Display for RateConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for RateConfigError {}
