//! Budgets: one near its limit, one far from it, one that never refuses, two that threads queue
//! for, and those that are closed one after the other.
//!
//! Handlers only release: an acquire may wait for the thread that they interrupt.

mod bounds;
mod closing;
mod far_from_limit;
mod near_limit;
mod never_refused;
mod queue;
mod units;

pub(super) use self::{
    closing::Closing, far_from_limit::FarFromLimit, near_limit::NearLimit,
    never_refused::NeverRefused, queue::Queue,
};

use super::{Actor, Structure};

/// Implements the checks of a structure by those of its units.
macro_rules! delegate {
    () => {
        fn check_in_child(&self, actor: &mut Actor) -> Checked {
            self.units.check_in_child(actor)
        }

        fn verify(&mut self) -> Checked {
            self.units.verify()
        }
    };
}
use delegate;
