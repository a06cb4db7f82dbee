//! Threads that free the objects they have allocated.

use std::{hint::black_box, ops::RangeInclusive, ptr};

use anyhow::Result;
use fastrand::Rng;

use super::{ChildSpec, touch::alloc_and_touch};
use crate::{contenders::allocators::Allocator, cpus::Cpus, slice};

/// Measures the time of an operation, in a slice that is long enough for at least one.
///
/// If other programs use the CPUs, threads may wait for longer than a short slice.
pub(super) fn op_ns<Op: FnMut() -> Result<()>>(
    cpus: &Cpus,
    spec: &ChildSpec,
    step: u32,
    prepare: impl Fn(usize) -> Op + Sync,
) -> Result<f64> {
    let mut length = spec.length;
    loop {
        let slice = slice::run(cpus, spec.threads, step, &prepare, || slice::sleep(length))?;
        if slice.ops > 0 {
            return slice.op_ns();
        }
        length *= 2;
    }
}

/// Measures the time of allocating an object and freeing it.
pub(super) fn pair<A: Allocator>(cpus: &Cpus, spec: &ChildSpec, size: usize) -> Result<f64> {
    let (allocator, size) = (&A::new(size), black_box(size));
    let prepare = |_| {
        allocator.enter();
        move || {
            let object = alloc_and_touch(allocator, size);
            // SAFETY: `allocator` has just returned the object for that size, and it is not used.
            unsafe { allocator.free(object, size) };
            Ok(())
        }
    };
    op_ns(cpus, spec, 256, prepare)
}

/// Measures the time per object if many are allocated before the first of them is freed.
pub(super) fn burst<A: Allocator>(cpus: &Cpus, spec: &ChildSpec, size: usize) -> Result<f64> {
    const COUNT: usize = 10_000;
    let (allocator, size) = (&A::new(size), black_box(size));
    let prepare = |_| {
        allocator.enter();
        let mut objects = vec![ptr::null_mut(); COUNT];
        move || {
            objects.iter_mut().for_each(|place| *place = alloc_and_touch(allocator, size));
            for &object in &objects {
                // SAFETY: `allocator` returned each object above for that size, and it is not used.
                unsafe { allocator.free(object, size) };
            }
            Ok(())
        }
    };
    Ok(op_ns(cpus, spec, 2, prepare)? / COUNT as f64)
}

/// Measures the time of allocating an object and freeing a random one of the thread's.
pub(super) fn churn<A: Allocator>(cpus: &Cpus, spec: &ChildSpec, size: usize) -> Result<f64> {
    let (allocator, size) = (&A::new(size), black_box(size));
    let prepare = |index| {
        allocator.enter();
        let mut held = Held::new(allocator, move |_: &mut Rng| size, index as u64);
        move || {
            held.replace_one();
            Ok(())
        }
    };
    op_ns(cpus, spec, 64, prepare)
}

/// Measures like [`churn`], with objects of random sizes.
pub(super) fn random<A: Allocator>(
    cpus: &Cpus,
    spec: &ChildSpec,
    sizes: RangeInclusive<usize>,
) -> Result<f64> {
    let allocator = &A::new(*sizes.end());
    let prepare = |index| {
        allocator.enter();
        let sizes = sizes.clone();
        let size = move |random: &mut Rng| random.usize(sizes.clone());
        let mut held = Held::new(allocator, size, index as u64);
        move || {
            held.replace_one();
            Ok(())
        }
    };
    op_ns(cpus, spec, 64, prepare)
}

/// A few objects of one thread.
struct Held<'a, A: Allocator, S> {
    allocator: &'a A,
    /// Returns the size of the next object.
    size: S,
    /// Each with its size.
    objects: [(*mut u8, usize); 16],
    random: Rng,
}

impl<'a, A: Allocator, S: FnMut(&mut Rng) -> usize> Held<'a, A, S> {
    fn new(allocator: &'a A, mut size: S, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let objects = std::array::from_fn(|_| {
            let size = size(&mut random);
            (alloc_and_touch(allocator, size), size)
        });
        Self { allocator, size, objects, random }
    }

    #[inline(always)]
    fn replace_one(&mut self) {
        let size = (self.size)(&mut self.random);
        let place = &mut self.objects[self.random.usize(..16)];
        let new = (alloc_and_touch(self.allocator, size), size);
        let (old, old_size) = std::mem::replace(place, new);
        // SAFETY: the allocator returned it for that size, and `objects` has just forgotten it.
        unsafe { self.allocator.free(old, old_size) };
    }
}

impl<A: Allocator, S> Drop for Held<'_, A, S> {
    fn drop(&mut self) {
        for (object, size) in self.objects {
            // SAFETY: the allocator returned each object in `objects` for its size; none was freed.
            unsafe { self.allocator.free(object, size) };
        }
    }
}
