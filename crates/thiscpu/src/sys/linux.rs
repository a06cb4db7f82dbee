//! Linux: the real [`Machine`].

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::time::Duration;

use super::atomic::AtomicU32;
use super::futex::{self, Scope};
use super::machine::Machine;
use super::membarrier::{self, FenceError};
use super::rseq::vfork_word;
use super::{errno, fork, rseq, topology};
use crate::tier::Tier;

/// The kernel that this process runs on.
pub(crate) struct Linux;

impl Machine for Linux {
    fn cpus() -> usize {
        topology::possible_count()
    }

    fn index(tier: Tier) -> Option<usize> {
        match tier {
            Tier::Atomic if rseq::is_unregistered_forever() => None,
            // SAFETY: sched_getcpu has no preconditions; it fails with -1.
            Tier::Atomic => usize::try_from(unsafe { libc::sched_getcpu() }).ok().or(Some(0)),
            _ if rseq::is_registered() => Some(rseq::index()),
            _ => None,
        }
    }

    #[inline(always)]
    fn cpu_or_any() -> usize {
        rseq::cpu_or_any() as usize
    }

    fn node() -> usize {
        rseq::node().unwrap_or_else(topology::node)
    }

    fn nodes() -> usize {
        static NODES: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: the number leads to nothing else. Two threads that ask the system at the same
        // time may get different answers; one is kept, because caches are laid out by it.
        match NODES.load(Relaxed) {
            0 => {
                let nodes = topology::nodes().iter().last().unwrap_or(0) + 1;
                NODES
                    .compare_exchange(0, nodes, Relaxed, Relaxed)
                    .map_or_else(|first| first, |_| nodes)
            }
            nodes => nodes,
        }
    }

    unsafe fn discard(address: usize, bytes: usize) -> bool {
        // SAFETY: no code needs the contents, as the caller guarantees; the range stays accessible.
        unsafe { libc::madvise(address as *mut _, bytes, libc::MADV_DONTNEED) == 0 }
    }

    fn prefer_huge_pages(address: usize, bytes: usize, is_wanted: bool) -> bool {
        let advice = if is_wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the advice does not change the contents of memory.
        unsafe { libc::madvise(address as *mut _, bytes, advice) == 0 }
    }

    fn resident_pages(address: usize, bytes: usize) -> Option<usize> {
        let mut pages = [0_u8; 512];
        assert!(bytes <= pages.len() * 4096);
        let is_known = Self::page_bytes() == 4096
            // SAFETY: the buffer has a byte for each page. The kernel reads no memory.
            && unsafe { libc::mincore(address as *mut _, bytes, pages.as_mut_ptr()) } == 0;
        is_known.then(|| pages.iter().filter(|&&page| page & 1 != 0).count())
    }

    fn page_bytes() -> usize {
        fork::page_bytes()
    }

    fn is_vfork_child() -> bool {
        vfork_word::is_child()
    }

    fn time() -> u64 {
        time_of(libc::CLOCK_MONOTONIC)
    }

    fn coarse_time() -> u64 {
        time_of(libc::CLOCK_MONOTONIC_COARSE)
    }

    fn memory_limit() -> usize {
        let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|resource| {
            let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
            // SAFETY: the call is given a valid structure. If it fails, that is unchanged.
            unsafe { libc::getrlimit(resource, &raw mut limit) };
            limit.rlim_cur as usize
        });
        // `RLIM_INFINITY` is the highest.
        limits[0].min(limits[1])
    }

    fn register(tier: Tier) -> bool {
        tier == Tier::Atomic || rseq::is_registered() || rseq::register_if_ours()
    }

    fn fence() -> Result<(), FenceError> {
        membarrier::fence(vfork_word::is_child())
    }

    fn membarrier_fence() -> Result<(), i32> {
        membarrier::membarrier_fence()
    }

    fn generation() -> u32 {
        fork::generation()
    }

    fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        futex::wait(word, expected, timeout, Scope::Process);
    }

    fn wake(word: *const AtomicU32, how_many: i32) {
        futex::wake(word, how_many, Scope::Process);
    }

    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }

    #[inline(always)]
    fn prefetch(address: usize) {
        // SAFETY: a prefetch changes no register and no memory, and never faults.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
            #[cfg(target_arch = "aarch64")]
            asm!(
                "prfm pldl1keep, [{}]",
                in(reg) address,
                options(nostack, preserves_flags, readonly)
            );
        }
    }

    fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32> {
        let whole = before + bytes + align;
        // SAFETY: a new mapping aliases nothing, and only parts of it are unmapped again.
        unsafe {
            let start = libc::mmap(
                ptr::null_mut(),
                whole,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if start == libc::MAP_FAILED {
                return Err(errno::last());
            }
            let start = start as usize;
            let base = (start + before).next_multiple_of(align);
            let (first, end) = (base - before, base + bytes);
            if first > start {
                libc::munmap(start as *mut _, first - start);
            }
            if start + whole > end {
                libc::munmap(end as *mut _, start + whole - end);
            }
            // No part becomes a huge page, which would make a lane's first page cost 2 MiB, and
            // `mlockall` fills none. Both are advice: if they fail, lanes cost more memory.
            libc::madvise(first as *mut _, end - first, libc::MADV_NOHUGEPAGE);
            libc::munlock(first as *const _, end - first);
            Ok(base)
        }
    }

    fn commit(address: usize, bytes: usize) -> Result<(), i32> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: callers pass parts of ranges that they reserved, and that no Rust object is in.
        let result = unsafe { libc::mprotect(address as *mut _, bytes, access) };
        if result == 0 { Ok(()) } else { Err(errno::last()) }
    }

    fn map(bytes: usize) -> Result<usize, i32> {
        let address = Self::reserve(0, bytes, bytes)?;
        Self::commit(address, bytes).inspect_err(|_| {
            // SAFETY: the range was just reserved here, and no other code knows it.
            unsafe { Self::unmap(address, bytes) };
        })?;
        Ok(address)
    }

    fn find_gap(bytes: usize, align: usize) -> Result<usize, i32> {
        let start = Self::reserve(0, bytes, align)?;
        // SAFETY: the range was just reserved here, and no other code knows it.
        unsafe { Self::unmap(start, bytes) };
        Ok(start)
    }

    fn map_at(address: usize, bytes: usize) -> Result<(), i32> {
        map_with(address, bytes, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32> {
        map_with(address, bytes, libc::PROT_NONE)?;
        // SAFETY: the range was just mapped here, and no other code knows it.
        unsafe {
            if libc::mprotect(address as *mut _, bytes, libc::PROT_READ) != 0 {
                let error = errno::last();
                Self::unmap(address, bytes);
                return Err(error);
            }
        }
        Ok(())
    }

    fn reserve_at(address: usize, bytes: usize) -> Result<(), i32> {
        map_with(address, bytes, libc::PROT_NONE)
    }

    unsafe fn grow(address: usize, before: usize, bytes: usize) -> Result<(), i32> {
        // SAFETY: without a flag, the mapping stays where it is. The caller owns it, and the
        // kernel refuses to replace another one behind it.
        let start = unsafe { libc::mremap(address as *mut _, before, bytes, 0) };
        if start == libc::MAP_FAILED { Err(errno::last()) } else { Ok(()) }
    }

    unsafe fn remap(from: usize, before: usize, to: usize, bytes: usize) -> Result<(), i32> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the caller owns both ranges and accesses neither.
        let start =
            unsafe { libc::mremap(from as *mut _, before, bytes, flags, to as *mut libc::c_void) };
        if start == libc::MAP_FAILED { Err(errno::last()) } else { Ok(()) }
    }

    fn is_mapped(address: usize, bytes: usize) -> bool {
        // The C library's function is a cancellation point.
        //
        // SAFETY: msync changes no memory. It may write mapped files back, which the kernel does at
        // any time.
        unsafe { libc::syscall(libc::SYS_msync, address, bytes, libc::MS_ASYNC) == 0 }
    }

    unsafe fn unmap(address: usize, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that this library mapped the range and no code uses it.
        unsafe { libc::munmap(address as *mut _, bytes) == 0 }
    }
}

fn map_with(address: usize, bytes: usize, access: i32) -> Result<(), i32> {
    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping that replaces nothing. If the kernel puts it elsewhere, it is unmapped.
    unsafe {
        let flags = FLAGS | libc::MAP_FIXED_NOREPLACE;
        let start = libc::mmap(address as *mut _, bytes, access, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(errno::last());
        }
        if start as usize != address {
            // Kernels before 4.17 take the address as a hint.
            libc::munmap(start, bytes);
            return Err(libc::EEXIST);
        }
        libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
        Ok(())
    }
}

/// Returns the time of a clock in nanoseconds.
fn time_of(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to `now`.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    // On a machine with one node this only shows that no other field of the area is read.
    #[test]
    fn node_from_rseq_area_equals_node_from_getcpu() {
        if crate::tier().is_err() {
            return eprintln!("skipped: there is no tier");
        }
        for cpu in topology::affinity(0).unwrap().iter() {
            assert!(topology::run_on(cpu));
            assert_eq!(Linux::node(), topology::node(), "on CPU {cpu}");
        }
    }
}
