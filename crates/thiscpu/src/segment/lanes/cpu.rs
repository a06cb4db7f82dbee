//! Which lane a thread adds in.
//!
//! Any lane is right. The one of the CPU that the thread is on has a cache line that is close.

use crate::sys::Host;
use crate::sys::errno;
use crate::sys::machine::Machine as _;
use crate::sys::rseq;
use crate::sys::startup;

/// Returns the number of the CPU that this thread is on, or any other number.
#[inline(always)]
pub(in crate::segment) fn number() -> u32 {
    rseq::cpu_or_any()
}

/// Returns a lane below `count`: usually that of the CPU that this thread is on.
#[inline(always)]
pub(in crate::segment) fn lane(count: u32) -> u32 {
    lane_of(number(), count)
}

/// Returns a lane below `count` for a result of [`number`].
#[inline(always)]
pub(in crate::segment) fn lane_of(cpu: u32, count: u32) -> u32 {
    if cpu < count { cpu } else { other_lane(count) }
}

/// Returns a lane if the CPU is unknown, or if there are more CPUs than lanes.
#[inline(never)]
fn other_lane(count: u32) -> u32 {
    rseq::cpu_hint().unwrap_or_else(slow_hint) % count
}

/// Registers the thread if this library registers threads, and asks the system for the CPU.
#[cold]
fn slow_hint() -> u32 {
    let _errno = errno::save();
    let tier = startup::tier_or_best();
    // The next call finds an area, if there is one.
    Host::register(tier);
    // SAFETY: sched_getcpu has no preconditions; it fails with -1.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}
