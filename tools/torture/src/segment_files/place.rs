//! A place for a segment between two guards, which catch each access outside the segment.

use std::io;
use std::ptr::null_mut;

/// The length of a guard. No segment is longer, so no offset in a segment is larger.
const GUARD: usize = 1 << 40;
/// The most gaps that the kernel may fill before this one.
const OTHERS_MAX: usize = 10_000;

/// A gap between two guards, at which the kernel maps the next file.
///
/// No other gap of its length is above it.
pub(super) struct Place {
    at: usize,
    len: usize,
}

fn reserve(len: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses; nobody can access it.
    let address = unsafe { libc::mmap(null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address as usize) }
}

fn give_back(at: usize, len: usize) {
    // SAFETY: callers pass a part of a mapping of `reserve`, which nobody accesses.
    unsafe { libc::munmap(at as *mut _, len) };
}

impl Place {
    /// Makes the place, in address space that this process reserves for the rest of its life.
    pub(super) fn new(len: usize) -> io::Result<Place> {
        let at = reserve(GUARD + len + GUARD)? + GUARD;
        give_back(at, len);
        // The kernel takes the highest gap that is long enough. Gaps above are used up first.
        for _ in 0..OTHERS_MAX {
            if reserve(len)? == at {
                give_back(at, len);
                return Ok(Place { at, len });
            }
        }
        Err(io::Error::other("the kernel maps elsewhere"))
    }

    /// Returns whether something is mapped in the whole place.
    pub(super) fn is_taken(&self) -> bool {
        let mut pages = vec![0_u8; self.len.div_ceil(4096)];
        // SAFETY: the vector has a byte for each page, and the call only looks at the mapping.
        unsafe { libc::mincore(self.at as *mut _, self.len, pages.as_mut_ptr()) == 0 }
    }
}
