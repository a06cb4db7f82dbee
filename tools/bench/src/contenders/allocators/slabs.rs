//! The backend of the kernel's two designs: slabs of objects of one size, and the surplus of CPUs.
//!
//! One lock guards both. The kernel keeps a freelist in each slab, so that it can give empty slabs
//! back; an object that is freed on another CPU goes to its slab, under that slab's lock. The
//! workloads here give no memory back. An object therefore goes on the freelist of the CPU that
//! frees it, and from there, in chains of one slab's size, to the backend. This is less work for
//! the slow path than in the kernel.

use std::{
    alloc::{self, Layout},
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

use super::chain::Chain;

/// The size of a slab in bytes: the kernel's largest for small objects.
const SLAB_BYTES: usize = 32 << 10;

/// The layout of a slab, aligned to a page.
const SLAB: Layout = match Layout::from_size_align(SLAB_BYTES, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("4,096 is a power of two"),
};

pub(super) struct Slabs {
    object_bytes: usize,
    /// The number of objects in a slab: 2 to 4,096.
    pub(super) objects_per_slab: usize,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    chains: Vec<Chain>,
    slabs: Vec<NonNull<u8>>,
}

// SAFETY: `Shared` owns its slabs, which are plain memory that is not bound to a thread.
unsafe impl Send for Shared {}

impl Slabs {
    /// Creates slabs for objects of `size` bytes.
    ///
    /// # Panics
    ///
    /// Panics if `size` is not a multiple of 8 from 8 to 16,384.
    pub(super) fn new(size: usize) -> Self {
        let fits = size >= 8 && size.is_multiple_of(8) && size <= SLAB_BYTES / 2;
        assert!(fits, "slabs cannot hold objects of {size} bytes");
        let objects_per_slab = SLAB_BYTES / size;
        Self { object_bytes: size, objects_per_slab, shared: Mutex::default() }
    }

    /// Returns at most as many free objects as a slab has; none if there is no memory.
    #[cold]
    pub(super) fn take(&self) -> Chain {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.chains.pop().unwrap_or_else(|| shared.add_slab(self.object_bytes))
    }

    /// Makes a chain of free objects, which must be from these slabs, available to `take`.
    #[cold]
    pub(super) fn put(&self, chain: Chain) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).chains.push(chain);
    }
}

impl Shared {
    /// Allocates a slab and chains its objects in order of their addresses.
    fn add_slab(&mut self, object_bytes: usize) -> Chain {
        let mut chain = Chain::default();
        // SAFETY: the size of the layout is not zero.
        let Some(slab) = NonNull::new(unsafe { alloc::alloc(SLAB) }) else {
            return chain;
        };
        self.slabs.push(slab);
        for start in (0..SLAB_BYTES / object_bytes).rev().map(|index| index * object_bytes) {
            // SAFETY: the object at `start` is within the slab, which this thread owns. It has room
            // for an aligned word, because `new` checked that sizes are multiples of 8.
            unsafe { chain.push(slab.as_ptr().add(start)) };
        }
        chain
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        let shared = self.shared.get_mut().unwrap_or_else(PoisonError::into_inner);
        for slab in shared.slabs.drain(..) {
            // SAFETY: the slab was allocated with this layout, and no object outlives its
            // allocator.
            unsafe { alloc::dealloc(slab.as_ptr(), SLAB) };
        }
    }
}
