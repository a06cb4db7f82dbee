//! Budgets: one that is nearly used up, one that is shared out, one with plenty, and one that threads
//! queue for. Handlers only release: an acquire may wait for the thread that they interrupt.

mod known;
mod queue;
mod roomy;
mod scarce;
mod shares;
mod units;

pub(super) use self::{queue::Queue, roomy::Roomy, scarce::Scarce, shares::Shares};

use super::{Actor, Structure};
