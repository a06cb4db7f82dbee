//! Shared budgets: a limit that processes share, and that a kill cannot break.
//!
//! - `acquire`: acquires and releases;
//! - `close`: the end of a budget;
//! - `held`: the units of one participant, for readers that cannot write;
//! - `limit`: changes of the limit, and the state of one instant;
//! - `memory`: where the words of one budget are;
//! - `modeled`: shared budgets for the model, which has no files;
//! - `over_release`: releases of more units than are held;
//! - `pair`: the units of one participant on one CPU;
//! - `pool`: free units, and the operation that was committed last;
//! - `recall`: how all units come to the pool, so that it can refuse;
//! - `reclaim`: how the units of a dead participant come back;
//! - `serve`: grants to waiters, in the order of their tickets;
//! - `settle`: how an operation is committed, and finished by anybody;
//! - `slot`: participants, and what the protocol asks of the system;
//! - `wait`: how a waiter joins the queue and leaves it;
//! - `waiter`: the table of waiters.
//!
//! docs/design/shared-budget.md explains the protocol.

mod acquire;
mod close;
#[cfg(not(thiscpu_model))]
mod held;
mod limit;
mod memory;
#[cfg(thiscpu_model)]
mod modeled;
mod over_release;
mod pair;
mod pool;
mod recall;
mod reclaim;
mod serve;
mod settle;
mod slot;
mod wait;
mod waiter;

pub(crate) use self::limit::Instant;
pub(crate) use self::memory::{Pairs, Parts, Record, Slots};
#[cfg(thiscpu_model)]
pub use self::modeled::{Place, Process, SharedBudgets, WaitResult};
pub(crate) use self::pair::{Pair, Released};
pub(crate) use self::pool::{LANES_MAX, SLOTS_MAX, UNITS_MAX};
#[cfg(thiscpu_model)]
pub(crate) use self::reclaim::reclaim_all;
pub(crate) use self::reclaim::{free_slot, free_slot_of_dead};
pub(crate) use self::slot::{Participant, Slot, SlotState, World};
pub(crate) use self::wait::{Wait, Waiting};
pub(crate) use self::waiter::{Sleeper, Waiter};
