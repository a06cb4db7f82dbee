//! The errors of requests that were not admitted.

use std::error::Error;
use std::fmt;

use thiscpu::TryAcquireError;

/// A boxed error, as tower's own layers return it.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The error of a request that was refused because too few units were available.
///
/// A service returns it in a [`BoxError`]; `downcast_ref::<Overloaded>()` finds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overloaded {
    /// The number of units that were available, at one instant of the call.
    ///
    /// It is 0 while a service waits for units of the same budget, because they are promised.
    pub available: u64,
    /// The limit of the budget.
    pub limit: u64,
}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overloaded { available, limit } = self;
        write!(f, "request refused: only {available} of {limit} units are available; retry later")
    }
}

impl Error for Overloaded {}

/// The error of a request whose budget is [closed](thiscpu::Budget::close).
///
/// A service returns it in a [`BoxError`]; `downcast_ref::<Closed>()` finds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("request refused: the budget is closed; send it to another server")
    }
}

impl Error for Closed {}

/// Returns the error of a refused acquire from a budget with this limit.
pub(crate) fn refusal(error: TryAcquireError, limit: u64) -> BoxError {
    match error {
        TryAcquireError::Exhausted { available } => Box::new(Overloaded { available, limit }),
        TryAcquireError::Closed => Box::new(Closed),
    }
}
