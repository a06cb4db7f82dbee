//! What a model checker does for the machine.

use core::sync::atomic::Ordering;

/// A change of one word.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Swap(u64),
    Add(u64),
    And(u64),
    Or(u64),
    Exchange { old: u64, new: u64 },
}

impl Change {
    /// The new value, if there is to be one.
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

/// Steps of the running thread; before each, the checker may let others go first.
///
/// A location is named by its address and begins with the value at that address.
pub(super) trait Checker {
    /// The running thread, numbered from 0.
    fn me(&self) -> usize;

    /// Starts a thread; what is returned waits for its end.
    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()>;

    /// Lets other threads go on.
    fn yield_now(&self);

    /// A number below `below`; `None` if this checker leaves nothing to chance.
    fn choose(&self, below: usize) -> Option<usize>;

    fn load(&self, at: usize, first: u64, order: Ordering) -> u64;

    fn store(&self, at: usize, first: u64, value: u64, order: Ordering);

    /// Changes a word and returns what it was; `Err` if an exchange found something else.
    fn change(&self, at: usize, first: u64, by: Change, order: [Ordering; 2]) -> Result<u64, u64>;

    fn load_pair(&self, at: usize, order: Ordering) -> [u64; 2];

    /// Exchanges a pair; `Err` with what it is if that is not `old`.
    fn change_pair(
        &self,
        at: usize,
        old: [u64; 2],
        new: [u64; 2],
        order: [Ordering; 2],
    ) -> Result<(), [u64; 2]>;

    fn fence(&self, order: Ordering);

    /// Looks at, and perhaps changes, which section `cpu` is in, while no other thread does.
    fn with_cpu(&self, cpu: usize, access: &mut dyn FnMut(&mut Option<u64>));

    /// A relaxed store that belongs to the step that `with_cpu` is.
    fn store_at_once(&self, at: usize, first: u64, value: u64);

    /// Sleeps on `at` if `is_as_expected` when looked at, until woken.
    fn wait(&self, at: usize, is_as_expected: &dyn Fn() -> bool);

    /// Wakes up to `how_many` who sleep on `at`.
    fn wake(&self, at: usize, how_many: usize);
}
