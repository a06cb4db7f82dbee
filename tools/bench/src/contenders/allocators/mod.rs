//! Allocators: those of user-space programs, and the kernel's designs for objects of one size.

#[cfg(feature = "other-allocators")]
pub(crate) use self::mallocs::{Jemalloc, Mimalloc, Rpmalloc, Snmalloc};
pub(crate) use self::{
    mallocs::Glibc,
    slub_lock::SlubLock,
    slub_tid::SlubTid,
    this_cpu::{ThisCpuCache, ThisCpuHardened, ThisCpuMalloc, harden},
    versions::versions,
};
use super::Name;

mod chain;
mod double;
mod mallocs;
mod slabs;
mod slub_lock;
mod slub_tid;
#[cfg(test)]
mod tests;
mod this_cpu;
mod versions;

family! {
    $ allocators: Glibc
    #[cfg(feature = "other-allocators")] Mimalloc
    #[cfg(feature = "other-allocators")] Jemalloc
    #[cfg(feature = "other-allocators")] Snmalloc
    #[cfg(feature = "other-allocators")] Rpmalloc
    SlubLock SlubTid ThisCpuCache ThisCpuMalloc ThisCpuHardened
}

pub(crate) const OTHER_ALLOCATORS: [Name; 5] =
    [Name::Glibc, Name::Mimalloc, Name::Jemalloc, Name::Snmalloc, Name::Rpmalloc];

/// The contenders of cases in which objects have several sizes.
pub(crate) const OF_ANY_SIZE: &[Name] = &[
    Name::Glibc,
    Name::Mimalloc,
    Name::Jemalloc,
    Name::Snmalloc,
    Name::Rpmalloc,
    Name::ThisCpuMalloc,
];

/// An allocator that any thread may use.
pub(crate) trait Allocator: Send + Sync + Sized {
    /// Creates an allocator for objects of `size` bytes.
    ///
    /// The contenders in [`OF_ANY_SIZE`] allocate objects of other sizes too.
    fn new(size: usize) -> Self;

    /// Prepares the calling thread. Each thread calls this before it uses the allocator.
    fn enter(&self) {}

    /// Allocates an object of `size` bytes, aligned to 8; null if there is no memory.
    ///
    /// `size` must be at least 8, and for the contenders in [`OF_ANY_SIZE`] at least 1. The object
    /// lives at most as long as the allocator.
    fn alloc(&self, size: usize) -> *mut u8;

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// The object must be from this allocator's `alloc` with the same size, must not have been
    /// freed, and must not be in use.
    unsafe fn free(&self, object: *mut u8, size: usize);
}
