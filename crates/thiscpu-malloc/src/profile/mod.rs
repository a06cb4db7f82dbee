//! Heap profiles: which call sites allocated how much, by a sample of all blocks.
//!
//! A block is sampled with a probability that grows with its size: with the default interval, about
//! one in each 512 KiB that is allocated. Its stack is recorded, and weighted so that sums are
//! right on average for blocks of every size. A profile has two sums for each stack: of the blocks
//! that are live now, and of all that were allocated since the start.
//!
//! While a profile is on, `malloc` leaves its fast path; see [`start`] for the cost. `free` does
//! not: sampled blocks lie in slabs of their own, or are large, and the fast path knows neither.
//!
//! - `countdown` chooses the blocks; `weight` says what each stands for.
//! - `blocks` allocates and frees them. `records` has the stack of each while it is in use, and
//!   `stacks` the sums.
//! - `dump` writes the profile, with `build_id`s, and `file` into a file. `peak` knows when
//!   most was live.
//!
//! Writing a profile takes no lock that another call waits for. So a signal handler may write one,
//! even while it interrupts a sample.

mod blocks;
mod build_id;
mod countdown;
mod dump;
mod file;
mod memory;
mod peak;
mod records;
mod stacks;
mod system;
mod weight;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use thiscpu::__internal::save_errno;

use crate::fast_path::{PROFILED, has_flag, set_profiled};

pub(crate) use blocks::{
    forget_large, free_sampled, resized_large, sample, sample_large, sample_run, usable_size,
};
/// For `define_malloc`, which expands in other crates.
#[doc(hidden)]
pub use countdown::INTERVAL;
pub use file::write_file;
pub use peak::call_at_peaks;
pub(crate) use peak::calls_at_peaks;

/// The mean number of bytes between two samples, if no other is given: 512 KiB.
pub const DEFAULT_INTERVAL: u64 = 512 * 1024;

/// Begins to sample blocks, one in each `interval` bytes on average.
///
/// `interval` is 1 to 2^40; other values are taken as the nearest of these. With 1, almost every
/// block is sampled. If a profile is on already, only the interval changes, for each thread from
/// its next block on. Blocks that were allocated before are not in the profile.
///
/// While a profile is on, each allocation takes a nanosecond or more longer, and a free as long as
/// before. A sample takes some microseconds, most of them for its stack. Must not be called from a
/// signal handler.
pub fn start(interval: u64) {
    countdown::set_interval(interval);
    set_profiled(true);
}

/// Ends the sampling. The profile so far stays, and frees of its blocks are still counted.
pub fn stop() {
    set_profiled(false);
}

/// Returns whether blocks are sampled. A load; may be called from anywhere.
pub fn is_on() -> bool {
    has_flag(PROFILED)
}

/// Writes the profile: live blocks and all that were allocated, by stack.
///
/// The text is that of gperftools' heap profiles, which `pprof` reads, followed by the process's
/// mappings. `thiscpu profile` makes pprof's own format of it, with symbols, or a flame graph.
/// Numbers are weighted: they are estimates of all blocks. Allocates nothing and takes no lock; may
/// be called at any time, also from a signal handler and while no profile is on.
///
/// # Errors
///
/// Those of writing to `to`.
pub fn write(to: impl AsFd) -> io::Result<()> {
    let _errno = save_errno();
    dump::write(to.as_fd().as_raw_fd()).map_err(io::Error::from_raw_os_error)
}

/// Returns whether a block of `size` bytes is to be sampled, and counts it.
#[inline(always)]
pub(crate) fn is_due(size: usize) -> bool {
    countdown::count(size)
}
