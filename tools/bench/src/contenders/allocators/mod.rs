//! Allocators: those of user-space programs, and the kernel's designs for objects of one size.

#[cfg(feature = "other-allocators")]
pub(crate) use self::mallocs::{Jemalloc, Mimalloc, Rpmalloc, Snmalloc};
pub(crate) use self::{
    mallocs::Glibc,
    slub_lock::SlubLock,
    slub_tid::SlubTid,
    this_cpu::{ThisCpuCache, ThisCpuMalloc, harden},
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

/// The contenders of cases in which all objects have one size.
pub(crate) const ALL: &[Name] = &[
    Name::Glibc,
    Name::Mimalloc,
    Name::Jemalloc,
    Name::Snmalloc,
    Name::Rpmalloc,
    Name::SlubLock,
    Name::SlubTid,
    Name::ThisCpuCache,
    Name::ThisCpuMalloc,
    Name::ThisCpuHardened,
];

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
///
/// Workloads are generic over this trait, so that the measured loop calls each contender as a
/// program does: a library's function by its name, inlined code inline.
pub(crate) trait Allocator: Send + Sync + Sized {
    /// Creates an allocator for objects of `size` bytes.
    ///
    /// The contenders in [`OF_ANY_SIZE`] allocate objects of other sizes too.
    fn new(size: usize) -> Self;

    /// Prepares the calling thread. Each thread calls this before it uses the allocator.
    fn enter(&self) {}

    /// Allocates an object of `size` bytes, aligned to 8; null if there is no memory.
    ///
    /// `size` must be at least 8. The object lives at most as long as the allocator.
    fn alloc(&self, size: usize) -> *mut u8;

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// The object must be from this allocator's `alloc` with the same size, must not have been
    /// freed, and must not be in use.
    unsafe fn free(&self, object: *mut u8, size: usize);
}

/// Evaluates an expression with `A` standing for the type of the allocator called `$name`.
macro_rules! for_allocator {
    ($name:expr, $A:ident => $body:expr) => {
        for_allocator!(@match $name, $A, $body,
            Glibc SlubLock SlubTid ThisCpuCache ThisCpuMalloc, Mimalloc Jemalloc Snmalloc Rpmalloc)
    };
    (@match $name:expr, $A:ident, $body:expr, $($own:ident)*, $($other:ident)*) => {
        match $name {
            $($crate::contenders::Name::$own => {
                type $A = $crate::contenders::allocators::$own;
                $body
            })*
            $(#[cfg(feature = "other-allocators")]
            $crate::contenders::Name::$other => {
                type $A = $crate::contenders::allocators::$other;
                $body
            })*
            other => unreachable!("{other} is not an allocator"),
        }
    };
}
pub(crate) use for_allocator;
