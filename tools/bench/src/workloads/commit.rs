//! `commit`: accounting for 128 MiB of memory, with and without mapping the memory.
//!
//! Case `accounting` only adds and subtracts 32,768 pages. Case `syscalls` also maps and unmaps the
//! memory in between, as the threads of the first measurement of these designs did.

use std::{io, ptr};

use anyhow::{Context as _, ensure};

use super::{Measured, Setting, shared_counter};
use crate::{contenders::counters::Contender, metric::TIME_PER_OP, slice};

const BYTES: usize = 128 << 20;
const PAGE_BYTES: usize = 4096;
const PAGES: i64 = (BYTES / PAGE_BYTES) as i64;

/// Pairs of adds between two checks of the stop flag.
const ACCOUNTING_STEP: u32 = 128;

/// Pairs between two checks of the stop flag, where system calls cost far more than a check.
const SYSCALLS_STEP: u32 = 1;

/// Measures the time of one pair of adds.
pub(crate) fn accounting<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure::<C>(setting, ACCOUNTING_STEP, || Ok(()))
}

/// Measures the time to map and unmap the memory, with the pair of adds.
pub(crate) fn syscalls<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure::<C>(setting, SYSCALLS_STEP, map_and_unmap)
}

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
    let conduct = slice::lasting(setting.length);
    let slice = slice::run(setting.cpus, setting.threads, step, prepare, conduct)?;
    let sum = counter.sum();
    ensure!(sum == 0, "every add was subtracted again, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns(setting.threads, setting.cpus)?)])
}

/// Maps anonymous memory and unmaps it, without touching it.
#[inline]
fn map_and_unmap() -> anyhow::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses the address of a new anonymous mapping, so it overlaps nothing.
    let memory = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).context("cannot map 128 MiB");
    }
    // SAFETY: the range is the mapping made above, to which there are no references.
    if unsafe { libc::munmap(memory, BYTES) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot unmap 128 MiB");
    }
    Ok(())
}
