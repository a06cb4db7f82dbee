//! Hooks for this project's own tests and tools: not part of the API, and free to change.

use core::sync::atomic::AtomicU64;

use crate::section::{Processor, Sections as _};
use crate::sys::{fence as fences, rseq, rseq::index_ptr, startup, topology};
use crate::{Account, Budget, Error, Ledger, Rate, Tier};

/// Stays in a section for up to `turns` turns of a loop.
///
/// Stores to `turns_left` how many are left. Returns whether the section was aborted, or `None` if
/// this thread has no sections.
///
/// # Errors
///
/// Returns the errors of [`crate::tier()`].
#[inline(never)]
pub fn spin(turns: u64, turns_left: &AtomicU64) -> Result<Option<bool>, Error> {
    if startup::tier()? == Tier::Atomic || !(rseq::is_registered() || rseq::register_if_ours()) {
        return Ok(None);
    }
    // SAFETY: this thread is registered.
    Ok(Some(unsafe { Processor::spin(turns.max(1), turns_left) }))
}

/// Refuses direct sections on the calling thread, as before its first call.
///
/// The next slow path of the thread allows them again.
pub fn disable_direct() {
    index_ptr::clear();
}

/// Returns whether the calling thread may enter direct sections.
pub fn is_direct_enabled() -> bool {
    index_ptr::is_set()
}

/// Fences all sections of this process.
pub fn fence() {
    fences::fence();
}

/// Returns how many fences have begun that several callers could share.
pub fn fences() -> u64 {
    fences::begun()
}

/// Returns how many recalls `budget` has begun.
pub fn recalls(budget: &Budget) -> u64 {
    budget.recalls()
}

/// Returns how many recalls `rate` has begun.
pub fn rate_recalls(rate: &Rate) -> u64 {
    rate.recalls()
}

/// Returns whether `rate` is in per-CPU mode.
pub fn is_percpu(rate: &Rate) -> bool {
    rate.is_percpu()
}

/// Returns about how many charges found their account in no lane.
pub fn misses<const N: usize>(ledger: &Ledger<N>) -> u64 {
    ledger.misses()
}

/// Returns whether two accounts of a ledger are cached in the same set.
pub fn are_neighbours<const N: usize>(one: &Account<N>, other: &Account<N>) -> bool {
    one.shares_set_with(other)
}

/// Moves the calling thread to `cpu`, and returns whether that worked.
pub fn run_on(cpu: usize) -> bool {
    topology::run_on(cpu)
}

/// Unregisters the calling thread forever, so that it has no lane.
pub fn leave_lanes() {
    let _ = startup::tier();
    rseq::unregister_forever();
}
