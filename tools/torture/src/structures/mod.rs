//! What is tortured: a file for each kind of structure.
//!
//! To add one, write a file with a type that implements [`Structure`], and name it in [`all`].
//! Nothing else knows what there is.

mod alone;
mod budgets;
mod constructed;
mod counts;
mod fresh;
mod growing;
mod hot;
mod ledgers;
mod pairs;
mod setting;
mod several;
mod slabs;
mod stacks;
mod tide;
mod token;
mod words;

use fastrand::Rng;
use thiscpu::Counter;

use crate::wrong::Checked;

/// How many levels of one thread can be in the middle of something: itself, and a handler for each
/// of the two signals.
pub(crate) const LEVELS: usize = 3;

/// Whoever does something: a worker, a handler that interrupts it, or a forked child.
#[derive(Debug)]
pub(crate) struct Actor {
    /// Which page of the books is the worker's.
    pub(crate) slot: usize,
    pub(crate) random: Rng,
    /// Whether it has a lane, as far as it has not given it up.
    pub(crate) has_lane: bool,
    /// Operations done.
    pub(crate) ops: u64,
    /// How many of them gave an exact answer.
    pub(crate) exact: u64,
}

impl Actor {
    pub(crate) fn new(slot: usize, seed: u64) -> Actor {
        Actor { slot, random: Rng::with_seed(seed), has_lane: true, ops: 0, exact: 0 }
    }

    /// Notes an operation that gave an exact answer.
    pub(crate) fn exactly<R>(&mut self, answer: R) -> R {
        self.ops += 1;
        self.exact += 1;
        answer
    }
}

/// Something of the library, with the books on it.
pub(crate) trait Structure: Sync {
    /// Also the key in reports.
    fn name(&self) -> &'static str;

    /// Something at random, some microseconds of it, and a check of what it answers.
    fn turn(&self, actor: &mut Actor) -> Checked;

    /// The same in a signal handler, which may interrupt any part of `turn` and of the library: it
    /// must not wait, and must not allocate.
    fn interrupt(&self, actor: &mut Actor) -> Checked {
        let _ = actor;
        Ok(())
    }

    /// What must hold in a forked child, whose other threads vanished in the middle of anything. It
    /// must not wait for anything but the library, nor allocate except for a ledger's report, which does so in the
    /// library and relies on an allocator that forks are no harm to, as glibc's. It may leave this as it likes.
    fn child(&self, actor: &mut Actor) -> Checked;

    /// What everything must come to when all workers have ended.
    fn account(&mut self) -> Checked;
}

/// Everything there is, for workers in so many slots.
pub(crate) fn all(slots: usize) -> Vec<Box<dyn Structure>> {
    vec![
        Box::new(counts::Counts::new("counter", Counter::new(), slots)),
        Box::new(counts::Counts::new("counter_narrow", Counter::with_batch(2), slots)),
        Box::new(counts::Counts::new("counter_one_word", Counter::with_batch(0), slots)),
        Box::new(counts::Counts::wrapping("counter_wrapping", Counter::new(), slots)),
        Box::new(growing::Growing::new(slots)),
        Box::new(setting::Setting::new(slots)),
        Box::new(token::Token::new("token", Counter::new())),
        Box::new(token::Token::new("token_narrow", Counter::with_batch(2))),
        Box::new(tide::Tide::new()),
        Box::new(several::Several::new(slots)),
        Box::new(fresh::Fresh::new()),
        Box::new(hot::Hot::new(slots)),
        Box::new(words::Words::<u8>::new(slots)),
        Box::new(words::Words::<u16>::new(slots)),
        Box::new(words::Words::<u32>::new(slots)),
        Box::new(words::Words::<u64>::new(slots)),
        Box::new(pairs::Pairs::<u32>::new(slots)),
        Box::new(pairs::Pairs::<u64>::new(slots)),
        Box::new(stacks::Stacks::new(slots)),
        Box::new(budgets::Scarce::new(slots)),
        Box::new(budgets::Shares::new(slots)),
        Box::new(budgets::Roomy::new(slots)),
        Box::new(budgets::Queue::of_many(slots)),
        Box::new(budgets::Queue::of_few(slots)),
        Box::new(ledgers::Accounts::new(slots)),
        Box::new(ledgers::Moves::new(slots)),
        Box::new(slabs::Slabs::new(slots)),
        Box::new(constructed::Values::new()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each structure's books balance when one thread does everything.
    #[test]
    fn books_balance() {
        for mut structure in all(1) {
            let mut actor = Actor::new(0, 7);
            for _ in 0..300 {
                structure.turn(&mut actor).unwrap();
                structure.interrupt(&mut actor).unwrap();
            }
            assert!(actor.ops > 300, "{}", structure.name());
            structure.account().unwrap_or_else(|wrong| panic!("{}: {wrong}", structure.name()));
        }
    }

    #[test]
    fn children_check_what_they_find() {
        for structure in all(1) {
            let mut actor = Actor::new(0, 8);
            for _ in 0..20 {
                structure.turn(&mut actor).unwrap();
            }
            structure
                .child(&mut actor)
                .unwrap_or_else(|wrong| panic!("{}: {wrong}", structure.name()));
        }
    }
}
