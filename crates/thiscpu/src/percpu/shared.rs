//! What an operation on this CPU's lane does when its section did not commit.

use crate::lanes::current;
use crate::lanes::table::{self, READY_BIT};
use crate::section::{ATTEMPTS, Outcome};
use crate::sys::{errno, startup};
use crate::tier::Tier;

/// Tries `section` again a bounded number of times, then runs `atomic` on the shared lane.
///
/// Gives this thread a lane if it has none. In the atomic tier there are no sections: `atomic` runs
/// on the lane of the CPU that the thread was seen on, or on the shared lane. `item` is the word
/// that sections take; `section` must be restartable. Never waits; async-signal-safe.
#[cold]
#[inline(never)]
pub(crate) fn retry_or_shared<R>(
    item: usize,
    section: impl Fn() -> (Outcome, R),
    atomic: impl FnOnce(usize) -> R,
) -> (Outcome, R) {
    let _errno = errno::save();
    if startup::tier_or_panic() == Tier::Atomic {
        if current::entry() == 0 {
            current::acquire_lane();
        }
        let distance = table::distance_of(current::entry());
        return (Outcome::Committed, atomic((item & !READY_BIT) + distance));
    }
    for _ in 0..ATTEMPTS {
        match section() {
            done @ (Outcome::Committed | Outcome::Mismatch, _) => return done,
            (Outcome::Aborted, _) => {}
            _ if current::acquire_lane() => {}
            _ => break,
        }
    }
    // The shared lane is lane 0.
    (Outcome::Committed, atomic(item & !READY_BIT))
}
