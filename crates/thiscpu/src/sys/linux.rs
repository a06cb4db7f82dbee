//! Linux: the real [`Machine`].

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::time::Duration;

use super::atomic::AtomicU32;
use super::machine::Machine;
use super::membarrier::{self, FenceError};
use super::{fork, futex, mapping, rseq, topology};
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
        // SAFETY: the caller guarantees that the range is accessible and its contents unused.
        unsafe { mapping::discard(address, bytes) }
    }

    fn prefer_huge_pages(address: usize, bytes: usize, is_wanted: bool) -> bool {
        mapping::prefer_huge_pages(address, bytes, is_wanted)
    }

    fn page_bytes() -> usize {
        mapping::page_bytes()
    }

    fn coarse_time() -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes the time to `now`.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn register(tier: Tier) -> bool {
        tier == Tier::Atomic || rseq::is_registered() || rseq::register_if_ours()
    }

    fn fence() -> Result<(), FenceError> {
        membarrier::fence()
    }

    fn membarrier_fence() -> Result<(), i32> {
        membarrier::membarrier_fence()
    }

    fn generation() -> u32 {
        fork::generation()
    }

    fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        futex::wait(word, expected, timeout);
    }

    fn wake(word: *const AtomicU32, how_many: i32) {
        futex::wake(word, how_many);
    }

    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }

    fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32> {
        mapping::reserve(before, bytes, align)
    }

    fn commit(address: usize, bytes: usize) -> Result<(), i32> {
        mapping::commit(address, bytes)
    }

    fn map(bytes: usize) -> Result<usize, i32> {
        let address = mapping::reserve(0, bytes, bytes)?;
        mapping::commit(address, bytes).inspect_err(|_| {
            // SAFETY: the range was just reserved here, and no other code knows it.
            unsafe { mapping::unmap(address, bytes) };
        })?;
        Ok(address)
    }

    fn find_gap(bytes: usize, align: usize) -> Result<usize, i32> {
        mapping::find_gap(bytes, align)
    }

    fn map_at(address: usize, bytes: usize) -> Result<(), i32> {
        mapping::map_at(address, bytes)
    }

    fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32> {
        mapping::map_zeros_at(address, bytes)
    }

    fn is_mapped(address: usize, bytes: usize) -> bool {
        mapping::is_mapped(address, bytes)
    }

    unsafe fn unmap(address: usize, bytes: usize) {
        // SAFETY: the caller guarantees that this library mapped the range and no code uses it.
        unsafe { mapping::unmap(address, bytes) };
    }
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
