//! Threads that allocate and free for themselves.

use std::{hint::black_box, ptr, time::Duration};

use anyhow::Result;

use super::touch::alloc_and_touch;
use crate::{contenders::allocators::Allocator, cpus::Cpus, slice};

/// The time of an operation, in a slice that is long enough for at least one: where other programs use the CPUs,
/// threads may wait for longer than a short slice takes.
fn op_ns<Op: FnMut() -> Result<()>>(
    cpus: &Cpus,
    threads: usize,
    step: u32,
    mut length: Duration,
    prepare: impl Fn(usize) -> Op + Sync,
) -> Result<f64> {
    loop {
        let slice = slice::run(cpus, threads, step, &prepare, slice::lasting(length))?;
        if slice.ops > 0 {
            return slice.op_ns(threads, cpus);
        }
        length *= 2;
    }
}

/// The time of allocating an object and freeing it.
pub(super) fn pair<A: Allocator>(
    cpus: &Cpus,
    threads: usize,
    length: Duration,
    size: usize,
) -> Result<f64> {
    const STEP: u32 = 256;
    let (allocator, size) = (&A::new(size), black_box(size));
    let prepare = |_| {
        allocator.enter();
        move || {
            let object = alloc_and_touch(allocator, size);
            // SAFETY: it has just been allocated, and nobody uses it.
            unsafe { allocator.free(object, size) };
            Ok(())
        }
    };
    op_ns(cpus, threads, STEP, length, prepare)
}

/// The time for an object, where many are allocated before the first of them is freed.
pub(super) fn burst<A: Allocator>(
    cpus: &Cpus,
    threads: usize,
    length: Duration,
    size: usize,
) -> Result<f64> {
    const STEP: u32 = 2;
    const COUNT: usize = 10_000;
    let (allocator, size) = (&A::new(size), black_box(size));
    let prepare = |_| {
        allocator.enter();
        let mut objects = vec![ptr::null_mut(); COUNT];
        move || {
            objects.iter_mut().for_each(|place| *place = alloc_and_touch(allocator, size));
            for &object in &objects {
                // SAFETY: each was allocated above, once, and nobody uses it.
                unsafe { allocator.free(object, size) };
            }
            Ok(())
        }
    };
    Ok(op_ns(cpus, threads, STEP, length, prepare)? / COUNT as f64)
}

/// The time of allocating an object and freeing a random one of those that the thread has.
pub(super) fn churn<A: Allocator>(
    cpus: &Cpus,
    threads: usize,
    length: Duration,
    size: usize,
) -> Result<f64> {
    const STEP: u32 = 64;
    let (allocator, size) = (&A::new(size), black_box(size));
    let prepare = |index| {
        allocator.enter();
        let mut held = Held::new(allocator, size, index as u64);
        move || {
            held.replace_one();
            Ok(())
        }
    };
    op_ns(cpus, threads, STEP, length, prepare)
}

/// A few objects that a thread has.
struct Held<'a, A: Allocator> {
    allocator: &'a A,
    size: usize,
    objects: [*mut u8; 16],
    random: fastrand::Rng,
}

impl<'a, A: Allocator> Held<'a, A> {
    fn new(allocator: &'a A, size: usize, seed: u64) -> Self {
        let objects = std::array::from_fn(|_| alloc_and_touch(allocator, size));
        Self { allocator, size, objects, random: fastrand::Rng::with_seed(seed) }
    }

    #[inline(always)]
    fn replace_one(&mut self) {
        let place = &mut self.objects[self.random.usize(..16)];
        let old = std::mem::replace(place, alloc_and_touch(self.allocator, self.size));
        // SAFETY: it was this thread's, and has just left the place that it was remembered in.
        unsafe { self.allocator.free(old, self.size) };
    }
}

impl<A: Allocator> Drop for Held<'_, A> {
    fn drop(&mut self) {
        for object in self.objects {
            // SAFETY: what is in these places was allocated and not freed, and nobody uses it any more.
            unsafe { self.allocator.free(object, self.size) };
        }
    }
}
