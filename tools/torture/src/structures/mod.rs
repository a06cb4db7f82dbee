//! The structures under test, one kind in each file.
//!
//! To add one, write a file with a type that implements [`Structure`], and name it in [`all`].

mod add_loop;
mod budgets;
mod caches;
mod constructed;
mod counter;
mod counter_drifting;
mod counter_growing;
mod counter_set;
mod counters;
mod heap_profile;
mod ledgers;
mod pairs;
mod quiescent;
mod short_lived;
mod stacks;
mod token;
mod words;

use fastrand::Rng;
use thiscpu::Counter;

use self::counter::SingleCounter;
use crate::violation::Checked;

/// The number of calls that one thread can be in at a time.
///
/// Its own, and one in the handler of each of the two signals.
pub(crate) const LEVELS: usize = 3;

/// A worker, a handler that interrupts it, or a forked child.
#[derive(Debug)]
pub(crate) struct Actor {
    /// The slot of the worker, and its place in each oracle.
    pub(crate) slot: usize,
    pub(crate) random: Rng,
    /// Whether its thread has not given its lane up.
    pub(crate) has_lane: bool,
    /// The number of operations.
    pub(crate) ops: u64,
    /// The number of operations with an exact answer.
    pub(crate) exact: u64,
}

impl Actor {
    pub(crate) fn new(slot: usize, seed: u64) -> Actor {
        Actor { slot, random: Rng::with_seed(seed), has_lane: true, ops: 0, exact: 0 }
    }

    /// Counts an operation.
    fn counted<R>(&mut self, answer: R) -> R {
        self.ops += 1;
        answer
    }

    /// Counts an operation with an exact answer.
    fn exactly<R>(&mut self, answer: Checked<R>) -> Checked {
        self.exact += 1;
        self.counted(answer.map(drop))
    }
}

/// A structure of the library, with its oracle.
pub(crate) trait Structure: Sync {
    /// Runs random operations for some microseconds and checks their answers.
    fn step(&self, actor: &mut Actor) -> Checked;

    /// Runs random operations in a signal handler.
    ///
    /// The handler may interrupt any part of `step` and of the library. It must not wait and must
    /// not allocate.
    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        let _ = actor;
        Ok(())
    }

    /// Checks it in a forked child, whose other threads vanished in the middle of anything.
    ///
    /// It may leave the structure in any state. It must not wait except in the library. It must not
    /// allocate, except in the library for a snapshot of a ledger, which relies on an allocator
    /// that survives forks, as glibc's does.
    fn check_in_child(&self, actor: &mut Actor) -> Checked;

    /// Checks its final state, after all workers have ended.
    fn verify(&mut self) -> Checked;
}

/// Returns all structures with their keys in reports, for workers in `slots` slots.
pub(crate) fn all(slots: usize) -> Vec<(&'static str, Box<dyn Structure>)> {
    vec![
        ("counter", Box::new(SingleCounter::new(Counter::new(), slots))),
        ("counter_narrow", Box::new(SingleCounter::new(Counter::with_batch(2), slots))),
        ("counter_one_word", Box::new(SingleCounter::new(Counter::with_batch(0), slots))),
        ("counter_wrapping", Box::new(SingleCounter::wrapping(Counter::new(), slots))),
        ("counter_growing", Box::new(counter_growing::Growing::new(slots))),
        ("counter_set", Box::new(counter_set::SetCounter::new(slots))),
        ("token", Box::new(token::Token::new(Counter::new()))),
        ("token_narrow", Box::new(token::Token::new(Counter::with_batch(2)))),
        ("counter_drifting_lanes", Box::new(counter_drifting::DriftingLanes::new())),
        ("counters", Box::new(counters::Group::new(slots))),
        ("short_lived", Box::new(short_lived::ShortLived::new())),
        ("add_loop", Box::new(add_loop::AddLoop::new(slots))),
        ("words_u8", Box::new(words::Words::<u8>::new(slots))),
        ("words_u16", Box::new(words::Words::<u16>::new(slots))),
        ("words_u32", Box::new(words::Words::<u32>::new(slots))),
        ("words_u64", Box::new(words::Words::<u64>::new(slots))),
        ("pairs_u32", Box::new(pairs::Pairs::<u32>::new(slots))),
        ("pairs_u64", Box::new(pairs::Pairs::<u64>::new(slots))),
        ("stacks", Box::new(stacks::Stacks::new(slots))),
        ("budget_near_limit", Box::new(budgets::NearLimit::new(slots))),
        ("budget_never_refused", Box::new(budgets::NeverRefused::new(slots))),
        ("budget_far_from_limit", Box::new(budgets::FarFromLimit::new(slots))),
        ("budget_queue", Box::new(budgets::Queue::of_all(slots))),
        ("budget_queue_of_few", Box::new(budgets::Queue::of_few(slots))),
        ("budget_closing", Box::new(budgets::Closing::new())),
        ("ledger_accounts", Box::new(ledgers::Accounts::new(slots))),
        ("ledger_transfers", Box::new(ledgers::Transfers::new(slots))),
        ("caches", Box::new(caches::Caches::new(slots))),
        ("constructed", Box::new(constructed::Values::new())),
        ("heap_profile", Box::new(heap_profile::HeapProfile::new(slots))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracles_agree_on_one_thread() {
        for (name, mut structure) in all(1) {
            let mut actor = Actor::new(0, 7);
            for _ in 0..300 {
                structure.step(&mut actor).unwrap();
                structure.step_in_handler(&mut actor).unwrap();
            }
            assert!(actor.ops > 300, "{name}");
            structure.verify().unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        }
    }

    #[test]
    fn children_find_no_violation() {
        for (name, structure) in all(1) {
            let mut actor = Actor::new(0, 8);
            for _ in 0..20 {
                structure.step(&mut actor).unwrap();
            }
            let checked = structure.check_in_child(&mut actor);
            checked.unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        }
    }
}
