//! For this project's own crates and tests; not part of the API, and free to change.

use crate::section::{Processor, Sections as _};
use crate::sys::{env, fence as fences, rseq, rseq::index_ptr, startup, stderr, topology};
use crate::{Account, Budget, Error, Ledger, Tier};
use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::AtomicU64;

pub use crate::sys::{
    errno::{Saved, save as save_errno},
    lock::{Guard, Lock},
};

/// Stays in a section for up to `turns` turns of a loop, storing how many are left to `turns_left`.
/// Whether it was aborted; `None` where this thread has no sections.
///
/// # Errors
///
/// As [`crate::tier()`].
#[inline(never)]
pub fn linger(turns: u64, turns_left: &AtomicU64) -> Result<Option<bool>, Error> {
    if tier()? == Tier::Atomic || !(rseq::is_registered() || rseq::register_if_ours()) {
        return Ok(None);
    }
    // SAFETY: this thread is registered.
    Ok(Some(unsafe { Processor::spin(turns.max(1), turns_left) }))
}

/// Keeps the calling thread's near sections out until a call lets them in again, as they are at a thread's first.
pub fn keep_near_out() {
    index_ptr::clear();
}

/// Whether they are let in.
pub fn is_near() -> bool {
    index_ptr::is_set()
}

/// The tier, for an allocator, whose first use this has to come before: a wrong `THISCPU_TIER` is a warning on
/// standard error, once, and allocates nothing. Costs a load once the tier is chosen.
pub fn tier_or_best() -> Tier {
    startup::tier_or_best()
}

/// Calls `look` with the value of an environment variable, `None` if it is not set or this program is privileged.
/// Allocates nothing, keeps `errno`, and finds what is set before the C library does.
pub fn setting<T>(name: &CStr, look: impl FnOnce(Option<&[u8]>) -> T) -> T {
    env::var(name, look)
}

/// Writes a line of up to 511 bytes to the file `to`, without allocation; keeps `errno`.
pub fn say(to: i32, what: fmt::Arguments<'_>) {
    stderr::write_line(to, what);
}

/// Fences all sections of this process.
pub fn fence() {
    fences::fence();
}

/// How many fences have begun that others could share.
pub fn fences() -> u64 {
    fences::begun()
}

/// How many recalls `budget` has begun.
pub fn recalls(budget: &Budget) -> u64 {
    budget.recalls()
}

/// About how many charges found their account in no lane.
pub fn misses<const N: usize>(ledger: &Ledger<N>) -> u64 {
    ledger.misses()
}

/// Whether two accounts of a ledger have the same places in lanes.
pub fn are_neighbours<const N: usize>(one: &Account<N>, other: &Account<N>) -> bool {
    one.shares_set_with(other)
}

/// Moves the calling thread to `cpu`; whether that worked.
pub fn run_on(cpu: usize) -> bool {
    topology::run_on(cpu)
}

/// Makes the calling thread one without a lane, for the rest of its life.
pub fn leave_lanes() {
    let _ = tier();
    rseq::unregister_forever();
}

fn tier() -> Result<Tier, Error> {
    startup::tier()
}
