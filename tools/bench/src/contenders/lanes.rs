//! What the kernel's designs have on each CPU, on cache lines of its own: one word, for counters.
//!
//! The kernel's word is 32 bits wide, updated by plain instructions with preemption off. Here it is
//! 64 bits wide, which padding makes free, and updated by atomic instructions, since a program can
//! be preempted or moved to another CPU between finding its lane and changing it.

use std::{
    ops::Deref,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use crate::{cpus, rseq::CurrentCpu};

/// A value with its cache lines to itself. Two 64-byte lines, because processors fetch neighbours.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(T);

impl<T> Padded<T> {
    /// Gives `value` its cache lines.
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

/// A padded `T` per possible CPU.
pub(super) struct Lanes<T = AtomicI64> {
    lanes: Box<[Padded<T>]>,
    mask: usize,
    cpu: CurrentCpu,
}

impl<T: Default> Lanes<T> {
    /// Makes empty lanes for every CPU this machine can have, rounded up to a power of two.
    pub(super) fn new() -> Self {
        Self::of(cpus::possible().next_power_of_two())
    }

    /// Makes so many empty lanes, a power of two. If that is less than there are CPUs, some share one.
    pub(super) fn of(count: usize) -> Self {
        Self {
            lanes: (0..count).map(|_| Padded::default()).collect(),
            mask: count - 1,
            cpu: CurrentCpu::new(),
        }
    }

    /// This CPU's lane. The thread may have left that CPU by the time it looks.
    #[inline(always)]
    pub(super) fn here(&self) -> &T {
        &self.lanes[self.cpu.get() & self.mask]
    }

    /// One lane after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().map(|lane| &**lane)
    }
}

impl Lanes {
    /// All lanes added up, one after the other, while their owners go on.
    pub(super) fn sum(&self) -> i64 {
        // Relaxed: the lanes are read at different times whatever the order; each design's own
        // protocol, where it has one, orders this walk against its folds.
        self.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }
}

/// How much a lane may gather before it is folded: the kernel's rule.
pub(super) fn batch() -> i64 {
    (2 * cpus::online()).max(32) as i64
}

/// The most that all lanes together hold back from the total, by the kernel's reckoning.
pub(super) fn held_back_max(batch: i64) -> i64 {
    batch * cpus::online() as i64
}

/// Waits for another thread to finish something short.
///
/// Kernel code spins with preemption off, so that whom it waits for is running. Here that thread
/// may have been preempted, so after a short spin the CPU is offered to it.
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
