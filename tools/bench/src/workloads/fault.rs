//! `fault`: page faults, each charged to the account of the process that all threads belong to.
//!
//! In a turn a thread brings 64 pages in and charges each as it comes, as a page of a file, as anonymous or as
//! swapped; then it throws all of them away at once and takes them off the three counters, as a kernel
//! does. Case `accounting` does that around nothing. Case `syscalls` really brings in fresh memory, by
//! writing to it, and throws it away by `madvise`.

use std::{
    io, ptr, slice as slices,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, ensure};

use super::{Measured, Setting};
use crate::{
    contenders::{Padded, ledgers::Contender},
    metric::TIME_PER_OP,
    slice,
};

/// Pages of a turn.
const PAGES: usize = 64;

const FILE: usize = 0;
const ANON: usize = 1;
const SWAP: usize = 2;

/// What pages are charged as, one after the other. In truth all are anonymous: which of a process's counters
/// it is makes no difference to the fault, but caches have to bear that it is not always the same.
const KINDS: [usize; 8] = [ANON, FILE, ANON, ANON, SWAP, ANON, FILE, ANON];

/// Turns between two looks at the stop flag.
const ACCOUNTING_STEP: u32 = 8;

/// A turn of page faults costs far more than a look at the stop flag.
const SYSCALLS_STEP: u32 = 1;

/// Measures the time of accounting for a page.
pub(crate) fn accounting<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure::<C>(setting, ACCOUNTING_STEP, |_, _| (), |_| Ok(()))
}

/// Measures the time of a page fault with its accounting.
pub(crate) fn syscalls<C: Contender>(setting: &Setting<'_>) -> Measured {
    let memory: Vec<Memory> = (0..setting.threads).map(|_| Memory::map()).collect::<Result<_>>()?;
    let touch = |thread: usize, page| memory[thread].touch(page);
    measure::<C>(setting, SYSCALLS_STEP, touch, |thread| memory[thread].discard())
}

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
    let conduct = slice::lasting(setting.length);
    let slice = slice::run(setting.cpus, setting.threads, step, prepare, conduct)?;
    ledger.sync();
    for (kind, _) in charged {
        let left = ledger.read(&account, kind);
        ensure!(left == 0, "all was uncharged, but counter {kind} is {left}");
    }
    Ok(vec![TIME_PER_OP.reads(slice.op_ns(setting.threads, setting.cpus)? / PAGES as f64)])
}

/// A thread's memory, which is brought in page by page. Before its neighbour's lies a page that nobody may
/// touch, or the kernel would treat both as one, with a lock that both threads take in each fault.
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
        // SAFETY: A new anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), mapped_len, libc::PROT_NONE, flags, -1, 0) };
        ensure!(start != libc::MAP_FAILED, "cannot map memory: {}", io::Error::last_os_error());
        // SAFETY: The range is the beginning of the mapping made above, which nothing refers to. A kernel that
        // has no huge pages refuses the advice, and brings in single pages anyway.
        let status = unsafe {
            libc::madvise(start, len, libc::MADV_NOHUGEPAGE);
            libc::mprotect(start, len, libc::PROT_READ | libc::PROT_WRITE)
        };
        // SAFETY: The mapping stays until `Drop`, which is the last use of these bytes; they are zero on
        // demand, may be read and written if `mprotect` succeeded, and are not touched otherwise.
        let bytes = unsafe { slices::from_raw_parts(start.cast(), len) };
        let memory = Self { bytes, page_bytes };
        ensure!(status == 0, "cannot open memory to writes: {}", io::Error::last_os_error());
        Ok(memory)
    }

    /// Writes to a page, which brings it in.
    #[inline(always)]
    fn touch(&self, page: usize) {
        // Relaxed: nobody reads it.
        self.bytes[page * self.page_bytes].store(1, Relaxed);
    }

    /// Throws all pages away.
    #[inline]
    fn discard(&self) -> Result<()> {
        let start = self.bytes.as_ptr().cast_mut().cast();
        // SAFETY: The range is this mapping, of atomics; that they become zero is no more than if somebody had
        // stored zeroes.
        match unsafe { libc::madvise(start, self.bytes.len(), libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).context("cannot throw memory away"),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let start = self.bytes.as_ptr().cast_mut().cast();
        // SAFETY: The range is the mapping made by `map`, one page longer than the bytes; they are private to
        // this value, which nobody has any more.
        unsafe { libc::munmap(start, self.bytes.len() + self.page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_in_one_by_one_and_go_together() {
        let memory = Memory::map().unwrap();
        let resident = || {
            let mut pages = [0_u8; PAGES];
            let start = memory.bytes.as_ptr().cast_mut().cast();
            // SAFETY: The range is a mapping, and there is a byte of room for each of its pages.
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
