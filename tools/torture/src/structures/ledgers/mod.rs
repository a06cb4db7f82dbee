//! Ledgers: one with more accounts than lanes cache, and one whose units only circulate.
//!
//! Handlers use none: a charge may wait for a lock that the interrupted thread holds.

mod accounts;
mod transfers;

pub(super) use self::{accounts::Accounts, transfers::Transfers};

use super::{Actor, Structure};
