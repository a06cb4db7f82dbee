//! Allocators that programs call as `malloc` and `free`, each by its own name for these.

use super::Allocator;

/// Makes a contender of a pair of functions.
macro_rules! of_functions {
    ($($(#[$doc:meta])* $name:ident: $malloc:path, $free:path;)*) => {
        $($(#[$doc])*
        pub(crate) struct $name;

        impl Allocator for $name {
            fn new(_size: usize) -> Self {
                Self
            }

            #[inline(always)]
            fn alloc(&self, size: usize) -> *mut u8 {
                // SAFETY: it takes any size.
                unsafe { $malloc(size) }.cast()
            }

            #[inline(always)]
            unsafe fn free(&self, object: *mut u8, _size: usize) {
                // SAFETY: by this function's own contract, it is from the function above, and unused.
                unsafe { $free(object.cast()) }
            }
        })*
    };
}

of_functions! {
    /// The C library's.
    Glibc: libc::malloc, libc::free;
}
