//! `remote-64` to `remote-4194304`: one thread allocates, another frees.
//!
//! A ring passes objects in batches, at the same cost for each contender. A thread that finds the
//! ring full, or empty, waits. So the time of an object is that of the slower thread, less the time
//! that other programs took (see `laps`).

use std::{
    cell::UnsafeCell,
    hint::{self, black_box},
    mem, ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::Duration,
};

use anyhow::Result;

use super::{
    laps::{self, Stopwatch},
    touch::alloc_and_touch,
};
use crate::{
    contenders::{Padded, allocators::Allocator},
    cpu_wait::Waits,
    cpus::Cpus,
    slice,
};

/// One thread allocates and one frees.
pub(super) const THREADS: usize = 2;

/// The most batches in the ring.
const SLOTS: usize = 8;

/// Measures the time, of both CPUs together, of an object that one allocates and one frees.
///
/// `BATCH` objects are passed at once.
pub(super) fn measure<A: Allocator, const BATCH: usize>(
    cpus: &Cpus,
    mut length: Duration,
    size: usize,
) -> Result<f64> {
    let (allocator, size) = (&A::new(size), black_box(size));
    let (ring, laps, waits) = (&Ring::<BATCH>::default(), &Mutex::default(), &Waits::default());
    let prepare = |index| {
        allocator.enter();
        waits.join();
        let mut watch = Stopwatch::new(laps, waits);
        move || {
            let is_done = match index {
                0 => ring.pass(|| alloc_and_touch(allocator, size)),
                // SAFETY: the other thread allocated the objects in the ring, for that size, and
                // uses them no more.
                _ => ring.receive(|object| unsafe { allocator.free(object, size) }),
            };
            match (is_done, index) {
                (true, 0) => {}
                (true, _) => watch.count(),
                (false, _) => thread::yield_now(),
            }
            Ok(())
        }
    };
    let lap_ns = loop {
        slice::run(cpus, THREADS, 1, prepare, || slice::sleep(length))?;
        let laps = mem::take(&mut *laps.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(lap_ns) = laps::lap_ns(&laps) {
            break lap_ns;
        }
        // If other programs use the CPUs, threads may wait for longer than a short slice.
        length *= 2;
    };
    allocator.enter();
    // SAFETY: the objects in the ring were allocated for that size, by a thread that has ended.
    while ring.receive(|object| unsafe { allocator.free(object, size) }) {}
    let busy_cpus = THREADS.min(cpus.len()) as f64;
    Ok(lap_ns * busy_cpus / (Stopwatch::COUNT as usize * BATCH) as f64)
}

/// A ring of batches in flight from one thread to one other.
///
/// A slot belongs to the passing thread until it is counted in `passed`, and then to the receiving
/// thread until it is counted in `received`.
#[derive(Default)]
struct Ring<const BATCH: usize> {
    slots: [Padded<Slot<BATCH>>; SLOTS],
    passed: Padded<AtomicUsize>,
    received: Padded<AtomicUsize>,
}

/// The objects of a batch.
struct Slot<const BATCH: usize>(UnsafeCell<[*mut u8; BATCH]>);

impl<const BATCH: usize> Default for Slot<BATCH> {
    fn default() -> Self {
        Self(UnsafeCell::new([ptr::null_mut(); BATCH]))
    }
}

// SAFETY: `Ring` lets only the passing thread use a slot until `passed` counts it, and then only
// the receiving thread until `received` counts it.
unsafe impl<const BATCH: usize> Sync for Slot<BATCH> {}

impl<const BATCH: usize> Ring<BATCH> {
    /// Passes a batch from `next`, and returns whether there was room. One thread calls it.
    #[inline(always)]
    fn pass(&self, mut next: impl FnMut() -> *mut u8) -> bool {
        // Relaxed: only this thread stores it.
        let passed = self.passed.load(Relaxed);
        // Acquire: pairs with the Release store in `receive`, after which the slot is not read.
        if !soon(|| passed - self.received.load(Acquire) < SLOTS) {
            return false;
        }
        // SAFETY: the slot's last batch was received and its next is not passed, so the receiving
        // thread does not use it.
        let slot = unsafe { &mut *self.slots[passed % SLOTS].0.get() };
        slot.iter_mut().for_each(|place| *place = next());
        // Release: pairs with the Acquire load in `receive`, which then reads the slot.
        self.passed.store(passed + 1, Release);
        true
    }

    /// Calls `each` for the next batch, and returns whether there was one. One thread calls it.
    #[inline(always)]
    fn receive(&self, each: impl FnMut(*mut u8)) -> bool {
        // Relaxed: only this thread stores it.
        let received = self.received.load(Relaxed);
        // Acquire: pairs with the Release store in `pass`, before which the slot was written.
        if !soon(|| self.passed.load(Acquire) != received) {
            return false;
        }
        // SAFETY: the slot was passed and is not received, so the passing thread does not use it.
        let slot = unsafe { &*self.slots[received % SLOTS].0.get() };
        slot.iter().copied().for_each(each);
        // Release: pairs with the Acquire load in `pass`, which then writes the slot.
        self.received.store(received + 1, Release);
        true
    }
}

/// Spins until `is_so` returns true, and returns whether it did within some hundred attempts.
#[inline(always)]
fn soon(is_so: impl Fn() -> bool) -> bool {
    const SPINS: u32 = 256;
    (0..SPINS).any(|_| {
        is_so() || {
            hint::spin_loop();
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_passes_batches_in_order_and_only_when_there_is_room() {
        const BATCH: usize = 8;
        const BATCHES: usize = 1_000;
        let ring = Ring::<BATCH>::default();
        assert!(!ring.receive(|_| unreachable!()));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut numbers = 1..;
                let mut next = || ptr::without_provenance_mut(numbers.next().unwrap());
                for _ in 0..BATCHES {
                    while !ring.pass(&mut next) {
                        thread::yield_now();
                    }
                }
            });
            let mut expected = 1;
            while expected <= BATCHES * BATCH {
                let is_done = ring.receive(|object| {
                    assert_eq!(object.addr(), expected);
                    expected += 1;
                });
                if !is_done {
                    thread::yield_now();
                }
            }
        });
        for _ in 0..SLOTS {
            assert!(ring.pass(ptr::null_mut));
        }
        assert!(!ring.pass(ptr::null_mut));
    }
}
