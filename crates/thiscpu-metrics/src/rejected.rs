//! Errors of registrations through the facade, which cannot return them.

use crate::error::Error;

/// The number of errors that are kept; further ones are only counted.
const KEPT_MAX: usize = 64;

/// The errors of rejected registrations, without duplicates.
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
