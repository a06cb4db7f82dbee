//! What this library asks of the machine it runs on, sections and memory aside.
//!
//! There are two machines: Linux, which the modules beside this one reach, and a modelled one, on which
//! the same code is run by model checkers. Sections have a trait of their own (`section::Sections`),
//! and memory is what `atomic` names.

use core::time::Duration;

use super::atomic::AtomicU32;
use super::tier::Tier;

/// How often to look again before turning to something slower: `usual`, and once in a model, so that
/// checkers come to what is behind it.
pub(crate) const fn looks(usual: u32) -> u32 {
    if cfg!(thiscpu_model) { 1 } else { usual }
}

/// Why there is no fence any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    /// The error number of membarrier.
    pub(crate) error: i32,
    /// What stands in the way of what would replace it.
    pub(crate) reason: &'static str,
}

pub(crate) trait Machine {
    /// What this process runs on, if that has been chosen.
    fn tier() -> Option<Tier>;

    /// How many CPUs there can ever be.
    fn cpus() -> usize;

    /// The calling thread's index in the lane table, if it has one right now. It may be another
    /// when this returns.
    fn index(tier: Tier) -> Option<usize>;

    /// The NUMA node that the calling thread is on, below `nodes`. It may be another when this returns.
    fn node() -> usize;

    /// How many NUMA nodes there are, counted up to the highest number.
    fn nodes() -> usize;

    /// Drops what memory holds, which then is zero again, and gives its pages back; whether that worked.
    ///
    /// # Safety
    ///
    /// It was made accessible by `open` or `map_at`, and nobody needs what it holds.
    unsafe fn forget(address: usize, bytes: usize) -> bool;

    /// Whether memory from `map_at` is to be made of huge pages, where whole ones fit; advice, which may be refused. At first it is not.
    fn prefer_huge_pages(address: usize, bytes: usize, is_wanted: bool) -> bool;

    /// How large a page is that is not huge.
    fn page_bytes() -> usize;

    /// Nanoseconds since some time, to a few milliseconds.
    fn coarse_time() -> u64;

    /// Lets the calling thread run sections, if that is this library's to do. Whether it can now, or
    /// need not. Never waits; async-signal-safe.
    fn register(tier: Tier) -> bool;

    /// Waits until every section of this process that began before the call has committed or will
    /// restart; else says why that cannot be had any more.
    fn fence() -> Result<(), Refused>;

    /// The same by what the kernel has for it, and nothing in place of that; else the error number.
    fn fence_alone() -> Result<(), i32>;

    /// A number that differs between a process and its forked children.
    fn generation() -> u32;

    /// Sleeps while `word` holds `expected`, for at most `timeout`. May return for no reason.
    fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>);

    /// Wakes up to `how_many` who sleep on `word`, which is only a name here: it may be gone by now.
    fn wake(word: *const AtomicU32, how_many: i32);

    /// Lets another thread go on for a moment, in a loop that waits for it.
    fn pause();

    /// Reserves address space; returns a multiple of `align`, with `before` bytes before it and
    /// `bytes` behind it.
    fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32>;

    /// Makes reserved memory, or zeros that can be read, accessible; it is zero.
    fn open(address: usize, bytes: usize) -> Result<(), i32>;

    /// Memory that is zero and takes pages as it is touched: `bytes`, aligned to as much.
    fn map(bytes: usize) -> Result<usize, i32>;

    /// Where so much address space is that nothing is mapped in, at a multiple of `align`. It is not kept.
    fn gap(bytes: usize, align: usize) -> Result<usize, i32>;

    /// Such memory at an address, a multiple of a page; `EEXIST` if something is mapped there.
    fn map_at(address: usize, bytes: usize) -> Result<(), i32>;

    /// Zeros at such an address that can only be read until they are opened.
    fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32>;

    /// Whether all of a range of pages is mapped.
    fn is_mapped(address: usize, bytes: usize) -> bool;

    /// Gives it back.
    ///
    /// # Safety
    ///
    /// It is from `map` or `map_at`, and nobody uses it.
    unsafe fn unmap(address: usize, bytes: usize);
}

#[cfg(thiscpu_model)]
pub(crate) use crate::model::Model as Here;
#[cfg(not(thiscpu_model))]
pub(crate) use linux::Linux as Here;

#[cfg(not(thiscpu_model))]
mod linux {
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::{AtomicU32, Duration, Machine, Refused, Tier};
    use crate::sys::{fork, futex, mapping, membarrier, rseq, tier, topology};

    pub(crate) struct Linux;

    impl Machine for Linux {
        #[inline]
        fn tier() -> Option<Tier> {
            tier::of_this_process()
        }

        fn cpus() -> usize {
            topology::possible_count()
        }

        fn index(tier: Tier) -> Option<usize> {
            match tier {
                Tier::Atomic if rseq::is_done() => None,
                // SAFETY: sched_getcpu has no preconditions; it fails with -1.
                Tier::Atomic => usize::try_from(unsafe { libc::sched_getcpu() }).ok().or(Some(0)),
                _ if rseq::is_registered() => Some(rseq::index()),
                _ => None,
            }
        }

        fn node() -> usize {
            topology::node()
        }

        fn nodes() -> usize {
            static NODES: AtomicUsize = AtomicUsize::new(0);
            // Relaxed: a number, and nothing that it leads to. Two who ask the system at the same time may be told different
            // things, of which one is kept: caches rest on it.
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

        unsafe fn forget(address: usize, bytes: usize) -> bool {
            // SAFETY: the caller's promise.
            unsafe { mapping::forget(address, bytes) }
        }

        fn prefer_huge_pages(address: usize, bytes: usize, is_wanted: bool) -> bool {
            mapping::prefer_huge_pages(address, bytes, is_wanted)
        }

        fn page_bytes() -> usize {
            crate::sys::page_bytes()
        }

        fn coarse_time() -> u64 {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: it fills in the value that it is given.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        }

        fn register(tier: Tier) -> bool {
            tier == Tier::Atomic || rseq::is_registered() || rseq::register_if_ours()
        }

        fn fence() -> Result<(), Refused> {
            membarrier::fence()
        }

        fn fence_alone() -> Result<(), i32> {
            membarrier::fence_alone()
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

        fn open(address: usize, bytes: usize) -> Result<(), i32> {
            mapping::open(address, bytes)
        }

        fn map(bytes: usize) -> Result<usize, i32> {
            let address = mapping::reserve(0, bytes, bytes)?;
            mapping::open(address, bytes).inspect_err(|_| {
                // SAFETY: just reserved, and nobody's.
                unsafe { mapping::unmap(address, bytes) };
            })?;
            Ok(address)
        }

        fn gap(bytes: usize, align: usize) -> Result<usize, i32> {
            mapping::gap(bytes, align)
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
            // SAFETY: the caller's promise.
            unsafe { mapping::unmap(address, bytes) };
        }
    }
}
