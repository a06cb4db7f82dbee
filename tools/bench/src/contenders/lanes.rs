//! Per-CPU lanes of the kernel's designs, each on its own cache lines.
//!
//! A counter's lane is one word. The kernel's word is 32 bits wide and updated with plain
//! instructions while preemption is off. Here the word is 64 bits wide, which costs nothing because
//! lanes are padded. It is updated with atomic instructions, because a program can be preempted or
//! moved to another CPU between finding its lane and changing it.

use std::{
    cmp::Ordering,
    ops::Deref,
    sync::atomic::{
        AtomicBool, AtomicI64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::{cpus, rseq::CurrentCpu};

/// A value on two 64-byte cache lines of its own.
///
/// One line is not enough: processors also prefetch the neighboring line.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(T);

impl<T> Padded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A padded `T` for each possible CPU.
pub(super) struct Lanes<T = AtomicI64> {
    lanes: Box<[Padded<T>]>,
    mask: usize,
    cpu: CurrentCpu,
}

impl<T: Default> Default for Lanes<T> {
    /// Creates one empty lane per possible CPU, rounded up to a power of two.
    fn default() -> Self {
        Self::at_most(usize::MAX)
    }
}

impl<T: Default> Lanes<T> {
    /// Creates empty lanes as `default` does, but at most `most`, a power of two or `usize::MAX`.
    ///
    /// If there are more CPUs than lanes, some CPUs share a lane.
    pub(super) fn at_most(most: usize) -> Self {
        let count = cpus::possible().next_power_of_two().min(most);
        Self {
            lanes: (0..count).map(|_| Padded::default()).collect(),
            mask: count - 1,
            cpu: CurrentCpu::new(),
        }
    }

    /// Returns this CPU's lane. The thread may have left that CPU before it uses the lane.
    #[inline(always)]
    pub(super) fn here(&self) -> &T {
        &self.lanes[self.cpu.get() & self.mask]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().map(|lane| &**lane)
    }
}

impl Lanes {
    /// Adds `n` to this CPU's lane.
    ///
    /// If that fills the batch, or `n` alone does, it calls `fold` with what the lane lacks.
    #[inline(always)]
    pub(super) fn add(&self, n: i64, batch: i64, fold: impl FnOnce(i64, &AtomicI64)) {
        let lane = self.here();
        if n.unsigned_abs() >= batch.unsigned_abs() {
            return fold(n, lane);
        }
        // Relaxed: sums and folds need only the lane's own modification order.
        let count = lane.fetch_add(n, Relaxed).wrapping_add(n);
        if count.unsigned_abs() >= batch.unsigned_abs() {
            fold(0, lane);
        }
    }

    /// Adds all lanes up, one after the other, while other threads continue to add.
    pub(super) fn sum(&self) -> i64 {
        // Relaxed: the lanes are read at different times with any ordering. If a design orders sums
        // against folds, its own protocol does so.
        self.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }
}

/// The amounts that the kernel computes from the number of CPUs online.
pub(super) struct Batch {
    /// The amount at which a lane is folded.
    pub(super) size: i64,
    /// The estimate of how much all lanes can hold back from the total.
    pub(super) held_back_max: i64,
}

impl Default for Batch {
    fn default() -> Self {
        let size = (2 * cpus::online()).max(32) as i64;
        Self { size, held_back_max: size * cpus::online() as i64 }
    }
}

/// Compares a counter with `limit` as the kernel does.
///
/// The rough value decides if it is further from the limit than the lanes can hold back. Otherwise
/// the exact sum decides, and is returned too.
#[inline]
pub(super) fn rough_then_exact(
    rough: i64,
    limit: i64,
    held_back_max: i64,
    sum: impl FnOnce() -> i64,
) -> (Ordering, Option<i64>) {
    if rough.abs_diff(limit) > held_back_max.unsigned_abs() {
        return (rough.cmp(&limit), None);
    }
    let sum = sum();
    (sum.cmp(&limit), Some(sum))
}

/// Waits for another thread to finish something short.
///
/// Kernel code spins with preemption off, so the thread it waits for is running. Here that thread
/// may have been preempted, so after a short spin the waiter yields its CPU.
#[inline]
pub(super) fn wait_until(is_done: impl Fn() -> bool) {
    const SPINS: u32 = 64;
    while !is_done() {
        for _ in 0..SPINS {
            if is_done() {
                return;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

/// A word that threads exchange, to do something one after the other.
#[derive(Default)]
pub(super) struct SpinLock(AtomicBool);

impl SpinLock {
    /// Runs `work` while holding the lock.
    #[inline(always)]
    pub(super) fn locked<T>(&self, work: impl FnOnce() -> T) -> T {
        // Acquire: pairs with the Release store below, made by the previous holder.
        while self.0.swap(true, Acquire) {
            // Relaxed: the load is only a hint that the swap may now succeed.
            wait_until(|| !self.0.load(Relaxed));
        }
        let outcome = work();
        // Release: pairs with the Acquire swap above, made by the next holder.
        self.0.store(false, Release);
        outcome
    }
}
