//! Registrations by the facade that could not be: it has no way to return an error.

use crate::error::Error;

/// So many errors are kept; more are counted.
const KEPT_MAX: usize = 64;

/// What was rejected, each once.
#[derive(Default)]
pub(crate) struct Rejected {
    kept: Vec<Error>,
    count: u64,
}

impl Rejected {
    pub(crate) fn add(&mut self, error: Error) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX && !self.kept.contains(&error) {
            self.kept.push(error);
        }
    }

    pub(crate) fn errors(&self) -> &[Error] {
        &self.kept
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
