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

#[cfg(feature = "other-allocators")]
of_functions! {
    /// The libmimalloc-sys crate's.
    Mimalloc: libmimalloc_sys::mi_malloc, libmimalloc_sys::mi_free;
    /// The tikv-jemalloc-sys crate's.
    Jemalloc: tikv_jemalloc_sys::malloc, tikv_jemalloc_sys::free;
    /// The snmalloc-sys crate's.
    Snmalloc: snmalloc_sys::sn_malloc, snmalloc_sys::sn_free;
}

/// The rpmalloc-sys crate's.
#[cfg(feature = "other-allocators")]
pub(crate) struct Rpmalloc;

#[cfg(feature = "other-allocators")]
impl Allocator for Rpmalloc {
    fn new(_size: usize) -> Self {
        static INITIALIZED: std::sync::Once = std::sync::Once::new();
        // SAFETY: once is how often it may be called.
        INITIALIZED.call_once(|| unsafe {
            rpmalloc_sys::rpmalloc_initialize();
        });
        Self
    }

    fn enter(&self) {
        // SAFETY: the allocator has been initialized; a thread may say so again.
        unsafe { rpmalloc_sys::rpmalloc_thread_initialize() };
    }

    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        // SAFETY: it takes any size, from a thread that has entered, as each has.
        unsafe { rpmalloc_sys::rpmalloc(size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, _size: usize) {
        // SAFETY: by this function's own contract, it is from the function above, and unused.
        unsafe { rpmalloc_sys::rpfree(object.cast()) }
    }
}
