//! What this library asks of the machine it runs on, sections and memory aside.
//!
//! There are two machines: Linux, which the modules beside this one reach, and a modelled one, on which
//! the same code is run by model checkers. Sections have a trait of their own (`section::Sections`),
//! and memory is what `atomic` names.

use core::time::Duration;

use super::atomic::AtomicU32;
use super::membarrier::FenceError;
use crate::tier::Tier;

/// How often to look again before turning to something slower: `usual`, and once in a model, so that
/// checkers come to what is behind it.
pub(crate) const fn looks(usual: u32) -> u32 {
    if cfg!(thiscpu_model) { 1 } else { usual }
}

pub(crate) trait Machine {
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
    fn fence() -> Result<(), FenceError>;

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
