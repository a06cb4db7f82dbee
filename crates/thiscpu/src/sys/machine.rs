//! The machine that this library runs on, without its memory and its sections.
//!
//! There are two machines. `Linux` is the real one; model checkers run the same code on a modelled
//! one. `super::Host` is the machine of this build. Sections have a trait of their own
//! (`section::Sections`), and memory is `super::atomic`.

use core::time::Duration;

use super::atomic::AtomicU32;
use super::membarrier::FenceError;
use crate::tier::Tier;

/// Returns how often to spin before something slower: `usual`, but once in a model.
pub(crate) const fn spins(usual: u32) -> u32 {
    if cfg!(thiscpu_model) { 1 } else { usual }
}

/// What `sys` offers to the layers above it.
pub(crate) trait Machine {
    /// Returns how many CPUs there can ever be.
    fn cpus() -> usize;

    /// Returns the calling thread's index in the lane table at this moment, if it has one.
    fn index(tier: Tier) -> Option<usize>;

    /// Returns the CPU that the calling thread is on if a few loads show it, or else any number.
    fn cpu_or_any() -> usize;

    /// Returns the NUMA node, below `nodes`, that the calling thread is on at this moment.
    fn node() -> usize;

    /// Returns one more than the highest number of a NUMA node.
    fn nodes() -> usize;

    /// Drops the pages of a range, which reads as zeros from then on.
    ///
    /// Returns whether that worked; it fails for locked pages.
    ///
    /// # Safety
    ///
    /// The range was made accessible by `commit` or `map_at`, and no code needs its contents.
    unsafe fn discard(address: usize, bytes: usize) -> bool;

    /// Advises whether to back memory from `map_at` with huge pages, where whole ones fit.
    ///
    /// Until then it is not. Returns whether the kernel took the advice: it may have no huge pages,
    /// or too many mappings.
    fn prefer_huge_pages(address: usize, bytes: usize, is_wanted: bool) -> bool;

    /// Returns how many pages of 4 KiB in a range of at most 2 MiB are in memory.
    ///
    /// `None` if that is not known: a part is not mapped, or pages have another size.
    fn resident_pages(address: usize, bytes: usize) -> Option<usize>;

    /// Returns the size of a page that is not huge, in bytes.
    fn page_bytes() -> usize;

    /// Returns whether the caller may be a child that runs on the memory of its parent's thread.
    fn is_vfork_child() -> bool;

    /// Returns the time since some start, in nanoseconds.
    fn time() -> u64;

    /// Returns the time since that start, in nanoseconds, precise to a few milliseconds.
    fn coarse_time() -> u64;

    /// Returns the lower limit of the process's address space and its data, or `usize::MAX`.
    fn memory_limit() -> usize;

    /// Registers the calling thread for sections, if this library registers threads.
    ///
    /// Returns whether the thread can run sections now, or needs none. Never waits;
    /// async-signal-safe.
    fn register(tier: Tier) -> bool;

    /// Waits until every section that began before the call has committed or will restart.
    fn fence() -> Result<(), FenceError>;

    /// Fences by membarrier alone, or returns its error number.
    fn membarrier_fence() -> Result<(), i32>;

    /// Returns a number that differs between a process and its forked children.
    fn generation() -> u32;

    /// Sleeps while `word` holds `expected`, for at most `timeout`. May return spuriously.
    fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>);

    /// Wakes up to `how_many` threads that sleep on `word`, which may be freed memory by now.
    fn wake(word: *const AtomicU32, how_many: i32);

    /// Lets another thread go on for a moment, in a loop that waits for it.
    fn pause();

    /// Starts to load the cache line of an address, which need not be valid; does not wait.
    fn prefetch(address: usize);

    /// Reserves address space, of which nothing is accessible.
    ///
    /// Returns a multiple of `align`, with `before` reserved bytes before it and `bytes` behind it.
    fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32>;

    /// Makes reserved memory, or readable zeros, accessible. It reads as zeros.
    fn commit(address: usize, bytes: usize) -> Result<(), i32>;

    /// Maps `bytes` of zeros, aligned to their size, that take up pages as they are touched.
    fn map(bytes: usize) -> Result<usize, i32>;

    /// Finds free address space at a multiple of `align`; another thread may map something there.
    fn find_gap(bytes: usize, align: usize) -> Result<usize, i32>;

    /// Maps zeros at `address`, a multiple of a page; fails with `EEXIST` if it is taken.
    ///
    /// They are locked if the program locks its future memory.
    fn map_at(address: usize, bytes: usize) -> Result<(), i32>;

    /// Maps zeros as `map_at` does that are only readable until they are committed.
    ///
    /// They do not count as data, and not as committed memory. In a program that locks its future
    /// memory they are not filled with pages, because the mapping starts without access.
    fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32>;

    /// Reserves address space at `address`, a multiple of a page, of which nothing is accessible.
    ///
    /// Fails with `EEXIST` if something is mapped there.
    fn reserve_at(address: usize, bytes: usize) -> Result<(), i32>;

    /// Makes a mapping from `map_at` longer. Fails if something is mapped behind it.
    ///
    /// The new part has the access and the advice of the rest.
    ///
    /// # Safety
    ///
    /// The caller owns the range from `address` to `address + before`, and the address space behind
    /// it up to `address + bytes`.
    unsafe fn grow(address: usize, before: usize, bytes: usize) -> Result<(), i32>;

    /// Moves the pages of a mapping from `map_at` to a range that `reserve_at` has reserved.
    ///
    /// `bytes`, the size of that range, is more than `before`. Fails if the range to be moved is
    /// not in one mapping; then it is unchanged, and the target may be reserved or not.
    ///
    /// # Safety
    ///
    /// The caller owns both ranges, and no code accesses them during the call. After it, nothing is
    /// mapped at `from`.
    unsafe fn remap(from: usize, before: usize, to: usize, bytes: usize) -> Result<(), i32>;

    /// Returns whether every page of a range is mapped.
    fn is_mapped(address: usize, bytes: usize) -> bool;

    /// Unmaps a range; returns false if the system refused, which leaves it as it was.
    ///
    /// It refuses to split a mapping if the process has as many as it may have.
    ///
    /// # Safety
    ///
    /// The range is from `map`, `map_at` or `map_zeros_at`, and no code uses it any more.
    unsafe fn unmap(address: usize, bytes: usize) -> bool;
}
