//! Allocators that programs call as `malloc` and `free`, each under its own function names.

use super::Allocator;

/// Defines contenders from pairs of functions.
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
                // SAFETY: the function accepts any size.
                unsafe { $malloc(size) }.cast()
            }

            #[inline(always)]
            unsafe fn free(&self, object: *mut u8, _size: usize) {
                // SAFETY: the caller guarantees that the object is from `alloc`, which calls the
                // allocator's own `malloc`, and that it is no longer used.
                unsafe { $free(object.cast()) }
            }
        })*
    };
}

of_functions! {
    Glibc: libc::malloc, libc::free;
}

#[cfg(feature = "other-allocators")]
of_functions! {
    Mimalloc: libmimalloc_sys::mi_malloc, libmimalloc_sys::mi_free;
    Jemalloc: tikv_jemalloc_sys::malloc, tikv_jemalloc_sys::free;
    Snmalloc: snmalloc_sys::sn_malloc, snmalloc_sys::sn_free;
}

#[cfg(feature = "other-allocators")]
pub(crate) struct Rpmalloc;

#[cfg(feature = "other-allocators")]
impl Allocator for Rpmalloc {
    fn new(_size: usize) -> Self {
        static INITIALIZED: std::sync::Once = std::sync::Once::new();
        // SAFETY: the function may be called once, and `Once` calls it once.
        INITIALIZED.call_once(|| unsafe {
            rpmalloc_sys::rpmalloc_initialize();
        });
        Self
    }

    fn enter(&self) {
        // SAFETY: `new` has initialized the allocator. A thread may make this call repeatedly.
        unsafe { rpmalloc_sys::rpmalloc_thread_initialize() };
    }

    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        // SAFETY: the function accepts any size from an initialized thread, and each thread calls
        // `enter` first.
        unsafe { rpmalloc_sys::rpmalloc(size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, _size: usize) {
        // SAFETY: the caller guarantees that the object is from `alloc`, which calls `rpmalloc`,
        // and that it is no longer used.
        unsafe { rpmalloc_sys::rpfree(object.cast()) }
    }
}
