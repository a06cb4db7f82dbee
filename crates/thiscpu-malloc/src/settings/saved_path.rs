//! Paths that a setting names, kept until a file is written.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

/// The path that was set last. Signal handlers may read it.
pub(crate) struct SavedPath {
    /// Null, or a string that never changes.
    path: AtomicPtr<c_char>,
}

impl SavedPath {
    pub(crate) const fn new() -> SavedPath {
        SavedPath { path: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Copies a path and keeps it from now on; fails if there is no memory.
    ///
    /// The copy takes a page for good, because a thread may still read an earlier path.
    pub(crate) fn set(&self, path: &[u8]) -> Result<(), &'static str> {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the mapping is new, has room for the path, and is zero behind it.
        unsafe {
            let copy = libc::mmap(ptr::null_mut(), path.len() + 1, access, flags, -1, 0);
            if copy == libc::MAP_FAILED {
                return Err("there is no memory for the path");
            }
            ptr::copy_nonoverlapping(path.as_ptr(), copy.cast(), path.len());
            // Release: pairs with the Acquire in `get`, after which the copy is read.
            self.path.store(copy.cast(), Release);
        }
        Ok(())
    }

    /// Keeps no path from now on.
    pub(crate) fn clear(&self) {
        self.path.store(ptr::null_mut(), Relaxed);
    }

    /// Returns the path, if one was set.
    pub(crate) fn get(&self) -> Option<&'static CStr> {
        // Acquire: pairs with the Release in `set`.
        let path = self.path.load(Acquire);
        // SAFETY: it is null, or a string that `set` has copied, which nothing changes or unmaps.
        (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
    }
}
