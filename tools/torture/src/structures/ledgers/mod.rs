//! Ledgers: one with more accounts than lanes have room for, and one whose units only go round. Handlers use none: a
//! charge may wait for a lock that the interrupted thread has.

mod accounts;
mod moves;

pub(super) use self::{accounts::Accounts, moves::Moves};

use super::{Actor, Structure};
