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
mod ledgers;
mod pairs;
mod quiescent;
mod short_lived;
mod stacks;
mod token;
mod words;

use fastrand::Rng;
use thiscpu::Counter;

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

    /// Counts an operation with an exact answer.
    pub(crate) fn exactly<R>(&mut self, answer: R) -> R {
        self.ops += 1;
        self.exact += 1;
        answer
    }
}

/// A structure of the library, with its oracle.
pub(crate) trait Structure: Sync {
    /// Returns its name, which is its key in reports.
    fn name(&self) -> &'static str;

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

/// Returns all structures, for workers in `slots` slots.
pub(crate) fn all(slots: usize) -> Vec<Box<dyn Structure>> {
    vec![
        Box::new(counter::SingleCounter::new("counter", Counter::new(), slots)),
        Box::new(counter::SingleCounter::new("counter_narrow", Counter::with_batch(2), slots)),
        Box::new(counter::SingleCounter::new("counter_one_word", Counter::with_batch(0), slots)),
        Box::new(counter::SingleCounter::wrapping("counter_wrapping", Counter::new(), slots)),
        Box::new(counter_growing::Growing::new(slots)),
        Box::new(counter_set::SetCounter::new(slots)),
        Box::new(token::Token::new("token", Counter::new())),
        Box::new(token::Token::new("token_narrow", Counter::with_batch(2))),
        Box::new(counter_drifting::DriftingLanes::new()),
        Box::new(counters::Group::new(slots)),
        Box::new(short_lived::ShortLived::new()),
        Box::new(add_loop::AddLoop::new(slots)),
        Box::new(words::Words::<u8>::new("words_u8", slots)),
        Box::new(words::Words::<u16>::new("words_u16", slots)),
        Box::new(words::Words::<u32>::new("words_u32", slots)),
        Box::new(words::Words::<u64>::new("words_u64", slots)),
        Box::new(pairs::Pairs::<u32>::new("pairs_u32", slots)),
        Box::new(pairs::Pairs::<u64>::new("pairs_u64", slots)),
        Box::new(stacks::Stacks::new(slots)),
        Box::new(budgets::NearLimit::new(slots)),
        Box::new(budgets::NeverRefused::new(slots)),
        Box::new(budgets::FarFromLimit::new(slots)),
        Box::new(budgets::Queue::of_all(slots)),
        Box::new(budgets::Queue::of_few(slots)),
        Box::new(ledgers::Accounts::new(slots)),
        Box::new(ledgers::Transfers::new(slots)),
        Box::new(caches::Caches::new(slots)),
        Box::new(constructed::Values::new()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracles_agree_on_one_thread() {
        for mut structure in all(1) {
            let mut actor = Actor::new(0, 7);
            for _ in 0..300 {
                structure.step(&mut actor).unwrap();
                structure.step_in_handler(&mut actor).unwrap();
            }
            assert!(actor.ops > 300, "{}", structure.name());
            structure.verify().unwrap_or_else(|wrong| panic!("{}: {wrong}", structure.name()));
        }
    }

    #[test]
    fn children_find_no_violation() {
        for structure in all(1) {
            let mut actor = Actor::new(0, 8);
            for _ in 0..20 {
                structure.step(&mut actor).unwrap();
            }
            structure
                .check_in_child(&mut actor)
                .unwrap_or_else(|wrong| panic!("{}: {wrong}", structure.name()));
        }
    }
}
