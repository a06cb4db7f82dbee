//! `remote-64`: one thread allocates, another frees.
//!
//! Objects are passed in batches, by a ring that costs each contender the same. Whoever finds the ring exhausted, or
//! empty, waits, so the time of an object is that of the slower of the two. What other programs take of that is taken off: see `laps`.

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

/// One that allocates and one that frees.
pub(super) const THREADS: usize = 2;

/// Objects that are passed at once.
const BATCH: usize = 64;

/// Batches under way at most.
const SLOTS: usize = 8;

/// The time of allocating an object and freeing it elsewhere, as the CPUs of both see it.
pub(super) fn measure<A: Allocator>(cpus: &Cpus, mut length: Duration, size: usize) -> Result<f64> {
    const STEP: u32 = 1;
    let (allocator, size) = (&A::new(size), black_box(size));
    let (ring, laps, waits) = (&Ring::default(), &Mutex::default(), &Waits::default());
    let prepare = |index| {
        allocator.enter();
        waits.join();
        let mut watch = Stopwatch::new(laps, waits);
        move || {
            let is_done = match index {
                0 => ring.pass(|| alloc_and_touch(allocator, size)),
                // SAFETY: what comes out of the ring was allocated by the other thread, which has
                // opaque it.
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
        slice::run(cpus, THREADS, STEP, prepare, slice::lasting(length))?;
        let laps = mem::take(&mut *laps.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(lap_ns) = laps::lap_ns(&laps) {
            break lap_ns;
        }
        // Where other programs use the CPUs, threads may wait for longer than a short slice takes.
        length *= 2;
    };
    allocator.enter();
    // SAFETY: as above; both threads have been joined.
    while ring.receive(|object| unsafe { allocator.free(object, size) }) {}
    let busy_cpus = THREADS.min(cpus.len()) as f64;
    Ok(lap_ns * busy_cpus / (Stopwatch::COUNT as usize * BATCH) as f64)
}

/// Batches on their way from one thread to one other.
#[derive(Default)]
struct Ring {
    slots: [Padded<Slot>; SLOTS],
    passed: Padded<AtomicUsize>,
    received: Padded<AtomicUsize>,
}

/// The objects of a batch.
struct Slot(UnsafeCell<[*mut u8; BATCH]>);

impl Default for Slot {
    fn default() -> Self {
        Self(UnsafeCell::new([ptr::null_mut(); BATCH]))
    }
}

// SAFETY: a slot is the passing thread's until it is counted as passed, and then the receiving one's until it
// is counted as received; see `Ring`.
unsafe impl Sync for Slot {}

impl Ring {
    /// Passes a batch of what `next` gives, if there is room; whether there was.
    ///
    /// Only one thread calls it.
    #[inline(always)]
    fn pass(&self, mut next: impl FnMut() -> *mut u8) -> bool {
        // Relaxed: only this thread changes it.
        let passed = self.passed.load(Relaxed);
        // Acquire: pairs with the Release store in `receive`; the slot has been read.
        if !soon(|| passed - self.received.load(Acquire) < SLOTS) {
            return false;
        }
        // SAFETY: its last batch was received, and the next is not passed: it is this thread's.
        let slot = unsafe { &mut *self.slots[passed % SLOTS].0.get() };
        slot.iter_mut().for_each(|place| *place = next());
        // Release: pairs with the Acquire load in `receive`.
        self.passed.store(passed + 1, Release);
        true
    }

    /// Calls `each` with each object of the next batch, if there is one; whether there was.
    ///
    /// Only one thread calls it.
    #[inline(always)]
    fn receive(&self, each: impl FnMut(*mut u8)) -> bool {
        // Relaxed: only this thread changes it.
        let received = self.received.load(Relaxed);
        // Acquire: pairs with the Release store in `pass`; the slot has been written.
        if !soon(|| self.passed.load(Acquire) != received) {
            return false;
        }
        // SAFETY: it was passed and not received: it is this thread's.
        let slot = unsafe { &*self.slots[received % SLOTS].0.get() };
        slot.iter().copied().for_each(each);
        // Release: pairs with the Acquire load in `pass`.
        self.received.store(received + 1, Release);
        true
    }
}

/// Whether something comes to be so within a moment.
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
    fn all_batches_arrive_in_order_and_none_before_there_is_room() {
        const BATCHES: usize = 1_000;
        let ring = Ring::default();
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
