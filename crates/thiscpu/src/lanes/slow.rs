//! What an op on this CPU's lane does when its section did not commit.

use super::here;
use super::table::{self, HALF};
use crate::section::{ATTEMPTS, Outcome};
use crate::sys::errno;
use crate::sys::startup;
use crate::tier::Tier;

/// Tries `section` again, giving this thread a lane if it has none; where there are no sections,
/// runs `atomic` on the address of the lane that this thread seems to be on; else of the slow lane, which is in
/// lane 0. `item` is as sections take it; `section` must be restartable. Never waits; async-signal-safe.
#[cold]
#[inline(never)]
pub(crate) fn slow<R>(
    item: usize,
    section: impl Fn() -> (Outcome, R),
    atomic: impl FnOnce(usize) -> R,
) -> (Outcome, R) {
    let _errno = errno::save();
    if startup::tier_or_panic() == Tier::Atomic {
        if here::entry() == 0 {
            here::join();
        }
        return (Outcome::Done, atomic((item & !HALF) + table::distance_of(here::entry())));
    }
    for _ in 0..ATTEMPTS {
        match section() {
            done @ (Outcome::Done | Outcome::Differs, _) => return done,
            (Outcome::Aborted, _) => {}
            _ if here::join() => {}
            _ => break,
        }
    }
    (Outcome::Done, atomic(item & !HALF))
}
