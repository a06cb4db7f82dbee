//! Sources of objects: the allocators of programs, and the kernel's designs for objects of one size.

#[cfg(feature = "other-allocators")]
pub(crate) use self::mallocs::{Jemalloc, Mimalloc, Rpmalloc, Snmalloc};
pub(crate) use self::versions::versions;
pub(crate) use self::{
    mallocs::Glibc,
    slub_lock::SlubLock,
    slub_tid::SlubTid,
    this_cpu_cache::ThisCpuCache,
    this_cpu_malloc::{ThisCpuMalloc, harden},
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
mod this_cpu_cache;
mod this_cpu_malloc;
mod versions;

/// Who competes where all objects of a process have one size.
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

/// Those that others wrote.
pub(crate) const OTHER_ALLOCATORS: [Name; 5] =
    [Name::Glibc, Name::Mimalloc, Name::Jemalloc, Name::Snmalloc, Name::Rpmalloc];

/// Who competes where they have several.
pub(crate) const OF_ANY_SIZE: &[Name] = &[
    Name::Glibc,
    Name::Mimalloc,
    Name::Jemalloc,
    Name::Snmalloc,
    Name::Rpmalloc,
    Name::ThisCpuMalloc,
];

/// Where objects come from, and where they go back to, on any thread.
///
/// Workloads are generic over it, so that each contender is called in the measured loop as a program would
/// call it: what is a library's function by that function's name, what is inlined into programs inline.
pub(crate) trait Allocator: Send + Sync + Sized {
    /// Makes an allocator for objects of `size` bytes; of other sizes too, if it is one of [`OF_ANY_SIZE`].
    fn new(size: usize) -> Self;

    /// Says that the calling thread is about to use it. Each thread does so before anything else.
    fn enter(&self) {}

    /// An object of `size` bytes, at least 8, aligned to 8, which is good as long as the allocator is there; null
    /// if there is no memory.
    fn alloc(&self, size: usize) -> *mut u8;

    /// Ends an object.
    ///
    /// # Safety
    ///
    /// The object is from this allocator's `alloc` of this size, was not ended before, and nobody uses it.
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
            other => unreachable!("{other} is no allocator"),
        }
    };
}
pub(crate) use for_allocator;
