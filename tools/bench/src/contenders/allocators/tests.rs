//! Every contender's guarantee: live objects do not overlap, they keep their contents, and any
//! thread may free them.

use std::{collections::BTreeSet, sync::mpsc, thread};

use super::{Allocator, OF_ANY_SIZE, SlubLock, SlubTid};
use crate::cpus::Cpus;

const SIZES: [usize; 6] = [8, 16, 64, 1024, 4096, 16384];

/// An object whose words all contain its mark.
struct Marked {
    start: *mut u8,
    bytes: usize,
    mark: u64,
}

// SAFETY: a `Marked` owns its object, which is plain memory that is not bound to a thread.
unsafe impl Send for Marked {}

impl Marked {
    fn new<A: Allocator>(allocator: &A, bytes: usize, mark: u64) -> Self {
        let start = allocator.alloc(bytes);
        assert!(!start.is_null() && start.cast::<u64>().is_aligned());
        for index in 0..bytes / 8 {
            // SAFETY: the object has `bytes` bytes, is aligned to 8, and belongs to this thread.
            unsafe { start.cast::<u64>().add(index).write(mark) };
        }
        Self { start, bytes, mark }
    }

    /// Frees the object after it has checked that all of its words still contain the mark.
    fn free<A: Allocator>(self, allocator: &A) {
        for index in 0..self.bytes / 8 {
            // SAFETY: `new` has written all words of the object.
            let word = unsafe { self.start.cast::<u64>().add(index).read() };
            assert_eq!(word, self.mark, "word {index} was overwritten");
        }
        // SAFETY: the object is from this allocator, and `self` was its only owner.
        unsafe { allocator.free(self.start, self.bytes) };
    }
}

/// Returns a number of objects for which each contender needs to get memory more than once.
fn count_of(bytes: usize) -> usize {
    (128 << 10) / bytes + 5
}

fn objects_are_distinct_and_keep_their_contents<A: Allocator>() {
    for bytes in SIZES {
        let allocator = &A::new(bytes);
        allocator.enter();
        for round in 0..3 {
            let mark = |index: usize| round << 32 | index as u64;
            let objects: Vec<Marked> = (0..count_of(bytes))
                .map(|index| Marked::new(allocator, bytes, mark(index)))
                .collect();
            let starts: BTreeSet<usize> =
                objects.iter().map(|object| object.start.addr()).collect();
            assert_eq!(starts.len(), objects.len());
            // One half is freed and allocated again while the other half is live.
            let (early, late): (Vec<_>, Vec<_>) =
                objects.into_iter().partition(|object| object.mark % 2 == 0);
            early.into_iter().for_each(|object| object.free(allocator));
            let again: Vec<Marked> =
                (0..count_of(bytes)).map(|_| Marked::new(allocator, bytes, u64::MAX)).collect();
            late.into_iter().chain(again).for_each(|object| object.free(allocator));
        }
    }
}

/// Checks that each thread can free what another allocated, with more threads than CPUs.
fn objects_may_be_freed_on_another_thread<A: Allocator>() {
    const THREADS: usize = 5;
    const PASSED: u64 = 20_000;
    let cpus = &Cpus::allowed().unwrap();
    let allocator = &A::new(64);
    let (senders, mut receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::sync_channel::<Vec<Marked>>(2)).unzip();
    receivers.rotate_left(1);
    thread::scope(|scope| {
        for (index, (sender, receiver)) in senders.into_iter().zip(receivers).enumerate() {
            scope.spawn(move || {
                cpus.pin(index).unwrap();
                allocator.enter();
                let mark = |number| (index as u64) << 32 | number;
                for first in (0..PASSED).step_by(100) {
                    let batch = (first..first + 100)
                        .map(|number| Marked::new(allocator, 64, mark(number)))
                        .collect();
                    sender.send(batch).unwrap();
                    let received = receiver.recv().unwrap();
                    received.into_iter().for_each(|object| object.free(allocator));
                }
            });
        }
    });
}

/// Checks many threads that move between CPUs, with lanes that run full and empty.
fn threads_that_meet_on_a_cpu_keep_their_objects<A: Allocator>() {
    let cpus = &Cpus::allowed().unwrap();
    let allocator = &A::new(4096);
    thread::scope(|scope| {
        for index in 0..16_u64 {
            scope.spawn(move || {
                allocator.enter();
                let mut random = fastrand::Rng::with_seed(index);
                let mut held: Vec<Marked> = Vec::new();
                for number in 0..2_000 {
                    if number % 64 == 0 {
                        cpus.pin(random.usize(..cpus.len())).unwrap();
                    }
                    if held.len() < 24 && random.bool() {
                        held.push(Marked::new(allocator, 4096, index << 32 | number));
                    } else if !held.is_empty() {
                        held.swap_remove(random.usize(..held.len())).free(allocator);
                    }
                }
                held.into_iter().for_each(|object| object.free(allocator));
            });
        }
    });
}

#[test]
fn allocators_of_any_size_serve_mixed_sizes() {
    for &name in OF_ANY_SIZE.iter().filter(|name| name.available().is_ok()) {
        super::dispatch!(name, A => {
            let allocator = &A::new(16);
            allocator.enter();
            let mut random = fastrand::Rng::with_seed(1);
            let objects: Vec<Marked> = (0..500)
                .map(|index| Marked::new(allocator, random.usize(1..2048) * 8, index))
                .collect();
            objects.into_iter().for_each(|object| object.free(allocator));
        });
    }
}

test_all! {
    objects_are_distinct_and_keep_their_contents
    objects_may_be_freed_on_another_thread
    threads_that_meet_on_a_cpu_keep_their_objects
}

/// With one freelist per CPU, threads meet only if one is preempted within a few nanoseconds.
mod on_one_freelist {
    use super::*;

    #[test]
    fn slub_lock_serves_threads() {
        objects_are_distinct_and_keep_their_contents::<SlubLock<1>>();
        objects_may_be_freed_on_another_thread::<SlubLock<1>>();
        threads_that_meet_on_a_cpu_keep_their_objects::<SlubLock<1>>();
    }

    #[test]
    fn slub_tid_serves_threads() {
        objects_are_distinct_and_keep_their_contents::<SlubTid<1>>();
        objects_may_be_freed_on_another_thread::<SlubTid<1>>();
        threads_that_meet_on_a_cpu_keep_their_objects::<SlubTid<1>>();
    }
}

/// Counts the allocations before the object that was freed last is allocated again.
fn allocs_before_last_freed<A: Allocator>() -> usize {
    let allocator = &A::new(1024);
    let objects: Vec<*mut u8> = (0..200).map(|_| allocator.alloc(1024)).collect();
    // SAFETY: the objects have just been allocated with this size, and nothing uses them.
    objects.iter().for_each(|&object| unsafe { allocator.free(object, 1024) });
    let again: Vec<*mut u8> = (0..200).map(|_| allocator.alloc(1024)).collect();
    assert_eq!(BTreeSet::from_iter(&again), BTreeSet::from_iter(&objects), "an object is lost");
    again.iter().position(|object| *object == objects[199]).unwrap()
}

#[test]
fn slab_designs_reuse_the_last_freed_object_first() {
    let cpus = Cpus::allowed().unwrap();
    let first = cpus.confined(0..1, || {
        Ok([allocs_before_last_freed::<SlubLock>(), allocs_before_last_freed::<SlubTid>()])
    });
    assert_eq!(first.unwrap(), [0, 0]);
}
