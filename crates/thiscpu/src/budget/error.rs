//! Why units were not acquired.

use std::fmt;

/// The error of an acquire that does not wait, or that waits until a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// Fewer units were available than requested, or they are promised to a waiter.
    Exhausted {
        /// The number of units that were available, at one instant of the refused call.
        available: u64,
    },
    /// The budget is [closed](super::Budget::close): it will never hand out units again.
    Closed,
}

const _: () =
    assert!(size_of::<Result<(), TryAcquireError>>() == 16, "two words are returned in registers");

impl TryAcquireError {
    /// Returns how many units were available to the refused call; 0 if the budget is closed.
    pub fn available(self) -> u64 {
        match self {
            TryAcquireError::Exhausted { available } => available,
            TryAcquireError::Closed => 0,
        }
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryAcquireError::Exhausted { available } => {
                write!(f, "budget exhausted: only {available} units are available")
            }
            TryAcquireError::Closed => AcquireError(()).fmt(f),
        }
    }
}

impl std::error::Error for TryAcquireError {}

impl From<AcquireError> for TryAcquireError {
    fn from(_: AcquireError) -> Self {
        TryAcquireError::Closed
    }
}

/// The error of an acquire that waits without a deadline: the budget is closed.
///
/// [`Budget::close`](super::Budget::close) ends each wait with this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireError(pub(super) ());

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("budget closed: it hands out no more units")
    }
}

impl std::error::Error for AcquireError {}
