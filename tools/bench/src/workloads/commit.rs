//! `commit`: accounting for 128 MiB of memory, with and without the memory.
//!
//! `accounting` adds and subtracts 32,768 pages and does nothing in between. `syscalls` maps and
//! unmaps the memory in between, as each thread did in the first measurement of these designs.

use std::{io, ptr};

use anyhow::{Context as _, ensure};

use super::{Measured, Setting, shared_counter};
use crate::{contenders::counters::Contender, metric::TIME_PER_OP};

const BYTES: usize = 128 << 20;
const PAGE_BYTES: usize = 4096;
const PAGES: i64 = (BYTES / PAGE_BYTES) as i64;

/// Measures the time of a plus and a minus.
pub(crate) fn accounting<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure::<C>(setting, 128, || Ok(()))
}

/// Measures the time of a mapping and an unmapping, with their accounting.
pub(crate) fn syscalls<C: Contender>(setting: &Setting<'_>) -> Measured {
    // A system call costs far more than a check of the stop flag.
    measure::<C>(setting, 1, map_and_unmap)
}

/// Measures pairs with `work` in between, and checks the stop flag after `step` of them.
#[inline(always)]
fn measure<C: Contender>(
    setting: &Setting<'_>,
    step: u32,
    work: impl Fn() -> anyhow::Result<()> + Sync,
) -> Measured {
    let counter = shared_counter::<C>()?;
    let prepare = |_| {
        || {
            counter.add(PAGES);
            work()?;
            counter.add(-PAGES);
            Ok(())
        }
    };
    let slice = setting.slice(step, prepare)?;
    let sum = counter.sum();
    ensure!(sum == 0, "all was subtracted again, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
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
