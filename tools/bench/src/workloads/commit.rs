//! `commit`: accounting for 128 MiB of memory, with and without the memory.
//!
//! `accounting` adds and subtracts 32,768 pages and does nothing in between. `syscalls` maps and
//! unmaps the memory in between, as each thread did in the first measurement of these designs.

use std::{io, ptr};

use anyhow::Context as _;

use super::{Measured, Setting, plus_and_minus};
use crate::contenders::counters::Contender;

const BYTES: usize = 128 << 20;
const PAGE_BYTES: usize = 4096;
const PAGES: i64 = (BYTES / PAGE_BYTES) as i64;

/// Measures the time of a plus and a minus.
pub(crate) fn accounting<C: Contender>(setting: &Setting<'_>) -> Measured {
    plus_and_minus(setting, 128, PAGES, |_: &C| Ok(()))
}

/// Measures the time of a mapping and an unmapping, with their accounting.
pub(crate) fn syscalls<C: Contender>(setting: &Setting<'_>) -> Measured {
    // A system call costs far more than a check of the stop flag.
    plus_and_minus(setting, 1, PAGES, |_: &C| map_and_unmap())
}

/// Maps anonymous memory and unmaps it, without accessing it.
#[inline]
fn map_and_unmap() -> anyhow::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an unused range for a new anonymous mapping.
    let memory = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).context("cannot map 128 MiB");
    }
    // SAFETY: the range is the mapping made above, to which there is no reference.
    if unsafe { libc::munmap(memory, BYTES) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot unmap 128 MiB");
    }
    Ok(())
}
