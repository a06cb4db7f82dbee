//! Memory that a process shares with its children.

use std::{io, mem::size_of, ops::Deref, ptr::NonNull};

use anyhow::{Context as _, Result};

/// A value that children of `fork` share.
pub(crate) struct SharedMemory<T>(NonNull<T>);

// SAFETY: this owns the mapping. Threads get references to the value only, and `T` allows that.
unsafe impl<T: Sync> Sync for SharedMemory<T> {}

/// A value that is valid when all of its bytes are 0.
///
/// # Safety
///
/// All bytes 0 are a valid value, and the value needs no drop.
pub(crate) unsafe trait Zeroed {}

impl<T: Zeroed> SharedMemory<T> {
    /// Maps a value of zeros.
    pub(crate) fn zeroed() -> Result<Self> {
        const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to a page") };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses an unused range for a new mapping.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map shared memory");
        }
        Ok(Self(NonNull::new(address.cast()).context("a mapping at 0")?))
    }
}

impl<T> Deref for SharedMemory<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `zeroed` has mapped a value, which is valid by `Zeroed` and is mapped until this
        // is dropped. Processes change it only through interior mutability, as references do.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for SharedMemory<T> {
    fn drop(&mut self) {
        // SAFETY: `zeroed` has mapped the range, and no reference to it outlives this.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}
