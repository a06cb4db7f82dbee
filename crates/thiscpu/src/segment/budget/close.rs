//! The end of a budget.

use super::memory::Parts;
use super::pool::Mode;
use super::slot::World;

impl Parts<'_> {
    /// Closes the budget: nobody gets units any more, and all waits end.
    ///
    /// The commit is an exchange of the pool. If the caller is killed before it has woken all, each
    /// waiter finds the budget closed at its next look.
    pub(crate) fn close(&self, world: &impl World) {
        loop {
            let now = self.recall_all(world);
            if now.mode() == Mode::Closed || self.commit(now, now.with_mode(Mode::Closed), world) {
                break;
            }
        }
        for waiter in self.waiters {
            if waiter.waiting().is_some_and(|(_, request)| request.budget == self.id) {
                waiter.count_wake();
                world.wake(waiter);
            }
        }
    }
}
