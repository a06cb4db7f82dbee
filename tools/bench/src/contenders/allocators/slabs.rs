//! What both of the kernel's designs have behind the CPUs: slabs, cut into objects of one size, and what CPUs
//! have too much of, all under one lock.
//!
//! The kernel keeps a freelist in each slab, so that it can give empty slabs back, and an object that is freed
//! on another CPU goes to its slab under that slab's lock. These workloads give no memory back. Here objects go
//! on the freelist of whatever CPU frees them, and from there in chains of a slab's worth to where all CPUs
//! find them: less work for the slow path than the kernel has.

use std::{
    alloc::{self, Layout},
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

use super::chain::Chain;

/// Bytes of a slab: the kernel's largest for small objects.
const SLAB_BYTES: usize = 32 << 10;

/// Slabs begin at pages.
const SLAB: Layout = match Layout::from_size_align(SLAB_BYTES, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("4,096 is a power of two"),
};

/// Slabs of objects of one size.
pub(super) struct Slabs {
    object_bytes: usize,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    chains: Vec<Chain>,
    slabs: Vec<NonNull<u8>>,
}

// SAFETY: a slab is memory like any other.
unsafe impl Send for Shared {}

impl Slabs {
    /// Slabs for objects of `size` bytes, which must be a multiple of 8 from 8 to 16,384.
    pub(super) fn new(size: usize) -> Self {
        let fits = size >= 8 && size.is_multiple_of(8) && size <= SLAB_BYTES / 2;
        assert!(fits, "slabs are not for objects of {size} bytes");
        Self { object_bytes: size, shared: Mutex::default() }
    }

    /// How many objects a slab has: at least two, at most 4,096.
    pub(super) fn objects_per_slab(&self) -> usize {
        SLAB_BYTES / self.object_bytes
    }

    /// Free objects, at most a slab's worth of them; none if there is no memory.
    #[cold]
    pub(super) fn take(&self) -> Chain {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.chains.pop().unwrap_or_else(|| shared.add_slab(self.object_bytes))
    }

    /// Gives free objects, from here, to whoever takes next.
    #[cold]
    pub(super) fn put(&self, chain: Chain) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).chains.push(chain);
    }
}

impl Shared {
    /// Cuts a new slab, so that its first object is the chain's first.
    fn add_slab(&mut self, object_bytes: usize) -> Chain {
        let mut chain = Chain::default();
        // SAFETY: the layout has a size.
        let Some(slab) = NonNull::new(unsafe { alloc::alloc(SLAB) }) else {
            return chain;
        };
        self.slabs.push(slab);
        for start in (0..SLAB_BYTES / object_bytes).rev().map(|index| index * object_bytes) {
            // SAFETY: so many bytes from here are within the slab and aligned to 8, since sizes are
            // multiples of that; nobody else has them.
            unsafe { chain.push(slab.as_ptr().add(start)) };
        }
        chain
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        let shared = self.shared.get_mut().unwrap_or_else(PoisonError::into_inner);
        for slab in shared.slabs.drain(..) {
            // SAFETY: it was allocated with that layout, and objects are good as long as their allocator.
            unsafe { alloc::dealloc(slab.as_ptr(), SLAB) };
        }
    }
}
