//! What is driven, a file for each kind.

#[cfg(target_arch = "x86_64")]
mod assembly;
mod budget;
mod count;
mod ledger;
mod linger;
mod pair;
mod slab;
mod stack;
mod word;

use crate::drive::Case;

/// Everything. A section that none of these comes through fails the run.
pub(crate) fn all() -> Vec<Case> {
    [
        budget::cases(),
        count::cases(),
        ledger::cases(),
        linger::cases(),
        pair::cases(),
        slab::cases(),
        stack::cases(),
        word::cases(),
    ]
    .concat()
}
