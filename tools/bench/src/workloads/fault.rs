//! `fault`: page faults, charged to the account of the process to which all threads belong.
//!
//! In a step a thread faults in 64 pages and charges each to a counter: file, anonymous or swapped
//! pages. Then it drops all pages at once and uncharges the three counters, as a kernel does. In
//! `accounting` there are no pages. In `syscalls`, a write to fresh memory causes the fault, and
//! `madvise` drops the pages.

use std::{
    io, ptr, slice,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, ensure};

use super::{Measured, Setting};
use crate::{
    contenders::{Padded, ledgers::Contender},
    metric::TIME_PER_OP,
};

/// The number of pages in a step.
const PAGES: usize = 64;

const FILE: usize = 0;
const ANON: usize = 1;
const SWAP: usize = 2;

/// The counters that successive pages are charged to.
///
/// All pages are anonymous. A fault does not depend on the counter, but caches have to cope with
/// several.
const KINDS: [usize; 8] = [ANON, FILE, ANON, ANON, SWAP, ANON, FILE, ANON];

/// Measures the time of accounting for a page.
pub(crate) fn accounting<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure::<C>(setting, 8, |_, _| (), |_| Ok(()))
}

/// Measures the time of a page fault with its accounting.
pub(crate) fn syscalls<C: Contender>(setting: &Setting<'_>) -> Measured {
    let memory: Vec<Memory> = (0..setting.threads).map(|_| Memory::map()).collect::<Result<_>>()?;
    let touch = |thread: usize, page| memory[thread].touch(page);
    // A step of page faults costs far more than a check of the stop flag.
    measure::<C>(setting, 1, touch, |thread| memory[thread].discard())
}

/// Measures steps with those calls, and checks the stop flag after `step` of them.
#[inline(always)]
fn measure<C: Contender>(
    setting: &Setting<'_>,
    step: u32,
    touch: impl Fn(usize, usize) + Sync,
    discard: impl Fn(usize) -> Result<()> + Sync,
) -> Measured {
    let ledger = Padded::new(C::new(1));
    let account = Padded::new(ledger.open());
    let pages_of = |kind| (0..PAGES).filter(|page| KINDS[page % KINDS.len()] == kind).count();
    let charged = [FILE, ANON, SWAP].map(|kind| (kind, pages_of(kind) as i64));
    let prepare = |thread| {
        let (ledger, account, touch, discard) = (&*ledger, &*account, &touch, &discard);
        move || {
            for page in 0..PAGES {
                touch(thread, page);
                ledger.charge(account, KINDS[page % KINDS.len()], 1);
            }
            discard(thread)?;
            charged.iter().for_each(|&(kind, pages)| ledger.uncharge(account, kind, pages));
            Ok(())
        }
    };
    let slice = setting.slice(step, prepare)?;
    ledger.sync();
    for (kind, _) in charged {
        let left = ledger.read(&account, kind);
        ensure!(left == 0, "all was uncharged, but counter {kind} is {left}");
    }
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()? / PAGES as f64)])
}

/// A thread's memory, which is faulted in page by page.
///
/// An inaccessible page separates it from the next thread's. Otherwise the kernel would merge both
/// mappings, and both threads would take the lock of one mapping in each fault.
struct Memory {
    bytes: &'static [AtomicU8],
    page_bytes: usize,
}

impl Memory {
    fn map() -> Result<Self> {
        // SAFETY: sysconf takes any name and has no preconditions.
        let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })?;
        let (len, mapped_len) = (PAGES * page_bytes, (PAGES + 1) * page_bytes);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses an unused range for a new anonymous mapping.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), mapped_len, libc::PROT_NONE, flags, -1, 0) };
        ensure!(start != libc::MAP_FAILED, "cannot map memory: {}", io::Error::last_os_error());
        // SAFETY: the range begins the mapping made above, to which there is no reference. A kernel
        // without huge pages refuses the advice, and faults in single pages anyway.
        let status = unsafe {
            libc::madvise(start, len, libc::MADV_NOHUGEPAGE);
            libc::mprotect(start, len, libc::PROT_READ | libc::PROT_WRITE)
        };
        // SAFETY: the mapping stays until `Drop`, the last use of these bytes. They are zero on
        // demand, accessible if `mprotect` succeeded, and not accessed otherwise.
        let bytes = unsafe { slice::from_raw_parts(start.cast(), len) };
        let memory = Self { bytes, page_bytes };
        ensure!(status == 0, "cannot make memory writable: {}", io::Error::last_os_error());
        Ok(memory)
    }

    /// Writes to a page, which faults it in.
    #[inline(always)]
    fn touch(&self, page: usize) {
        // Relaxed: the value is never read.
        self.bytes[page * self.page_bytes].store(1, Relaxed);
    }

    #[inline]
    fn discard(&self) -> Result<()> {
        let start = self.bytes.as_ptr().cast_mut().cast();
        // SAFETY: the range is this mapping. Its bytes are atomics, and the call only zeroes them.
        match unsafe { libc::madvise(start, self.bytes.len(), libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).context("cannot drop pages"),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let start = self.bytes.as_ptr().cast_mut().cast();
        // SAFETY: `map` mapped one page more than the bytes, which only this value refers to.
        unsafe { libc::munmap(start, self.bytes.len() + self.page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_faulted_in_one_by_one_and_dropped_together() {
        let memory = Memory::map().unwrap();
        let resident = || {
            let mut pages = [0_u8; PAGES];
            let start = memory.bytes.as_ptr().cast_mut().cast();
            // SAFETY: the range is a mapping, and `pages` has a byte for each of its pages.
            let status = unsafe { libc::mincore(start, memory.bytes.len(), pages.as_mut_ptr()) };
            assert_eq!(status, 0);
            pages.iter().filter(|&page| page & 1 != 0).count()
        };
        for touched in 0..PAGES {
            assert_eq!(resident(), touched);
            memory.touch(touched);
        }
        assert_eq!(resident(), PAGES);
        memory.discard().unwrap();
        assert_eq!(resident(), 0);
    }
}
