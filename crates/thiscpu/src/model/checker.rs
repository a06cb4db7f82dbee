//! The services of a model checker to the machine.

use core::sync::atomic::Ordering;

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Swap(u64),
    Add(u64),
    And(u64),
    Or(u64),
    Exchange { old: u64, new: u64 },
}

impl Change {
    /// Returns the new value, or `None` if an exchange fails.
    pub(super) fn of(self, now: u64) -> Option<u64> {
        match self {
            Change::Swap(new) => Some(new),
            Change::Add(n) => Some(now.wrapping_add(n)),
            Change::And(mask) => Some(now & mask),
            Change::Or(mask) => Some(now | mask),
            Change::Exchange { old, new } => (now == old).then_some(new),
        }
    }
}

/// The steps of the running thread. Before each the checker may run other threads.
///
/// A location is named by its address, and starts with the value at that address.
pub(super) trait Checker {
    /// Returns the running thread's number, from 0.
    fn me(&self) -> usize;

    /// Starts a thread; the returned function waits for its end.
    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()>;

    fn yield_now(&self);

    /// Returns a random number below `below`, or `None` if this checker makes no random choices.
    fn choose(&self, below: usize) -> Option<usize>;

    fn load(&self, at: usize, first: u64, order: Ordering) -> u64;

    fn store(&self, at: usize, first: u64, value: u64, order: Ordering);

    /// Changes a word and returns its old value, as `Err` if an exchange failed.
    fn change(&self, at: usize, first: u64, by: Change, order: [Ordering; 2]) -> Result<u64, u64>;

    fn load_pair(&self, at: usize, order: Ordering) -> [u64; 2];

    /// Exchanges a pair; returns its value as `Err` if that was not `old`.
    fn change_pair(
        &self,
        at: usize,
        old: [u64; 2],
        new: [u64; 2],
        order: [Ordering; 2],
    ) -> Result<(), [u64; 2]>;

    fn fence(&self, order: Ordering);

    /// Calls `access` with the section that `cpu` is in, while no other thread accesses it.
    fn with_cpu(&self, cpu: usize, access: &mut dyn FnMut(&mut Option<u64>));

    /// Stores a value, relaxed and without a step of its own: the caller is inside `with_cpu`.
    fn store_at_once(&self, at: usize, first: u64, value: u64);

    /// Sleeps on `at` until woken, if `is_as_expected` returns `true` under the sleepers' lock.
    fn wait(&self, at: usize, is_as_expected: &dyn Fn() -> bool);

    /// Wakes up to `how_many` threads that sleep on `at`.
    fn wake(&self, at: usize, how_many: usize);
}
