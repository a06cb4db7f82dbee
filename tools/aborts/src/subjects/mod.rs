//! The subjects, one kind in each file.

mod budget;
mod class;
mod counter;
mod ledger;
#[cfg(target_arch = "x86_64")]
mod malloc_asm;
mod pair;
mod slab;
mod spin;
mod stack;
mod word;

use crate::run_case::Case;

/// Returns all cases. A section that none of them executes fails the run.
pub(crate) fn all() -> Vec<Case> {
    let cases = [
        budget::cases(),
        counter::cases(),
        ledger::cases(),
        pair::cases(),
        slab::cases(),
        spin::cases(),
        stack::cases(),
        word::cases(),
    ];
    cases.into_iter().flatten().collect()
}
