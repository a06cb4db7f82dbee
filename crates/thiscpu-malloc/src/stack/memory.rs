//! Reads words at addresses that may be invalid.
//!
//! A stack walk follows unwind tables and saved registers. Those of hand-written or generated code
//! may be wrong, and a correct program must not crash because of that. So the kernel is asked
//! first: `rt_sigprocmask` copies the set it is given before it finds that the operation does not
//! exist, and returns `EFAULT` if it cannot. No sandbox denies that call, it works in signal
//! handlers, and it has no side effects.

use core::ptr;

/// The smallest page size there is, so all bytes of such a page are readable or none is.
const PAGE: usize = 4096;

/// Reads words, and remembers the last page that was found readable.
pub(super) struct Memory {
    readable_page: Option<usize>,
}

impl Memory {
    pub(super) fn new() -> Memory {
        Memory { readable_page: None }
    }

    /// Returns the word at `address`, if it is aligned and readable. Changes `errno`.
    pub(super) fn word(&mut self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        let page = address / PAGE;
        if self.readable_page != Some(page) {
            self.readable_page = is_readable(address).then_some(page);
            self.readable_page?;
        }
        // SAFETY: the kernel could read this page a moment ago. It usually holds a caller's frame,
        // which stays mapped while the caller waits. If a wrong table led here, another thread
        // could unmap the page meanwhile; that window is accepted. The read is volatile, and its
        // result is only used as a number.
        Some(unsafe { ptr::read_volatile(address as *const usize) })
    }
}

/// Returns whether the kernel can read the 8 bytes at `address`. Changes `errno`.
fn is_readable(address: usize) -> bool {
    const NO_OPERATION: i32 = -1;
    // SAFETY: the kernel reads 8 bytes at the address, or fails with `EFAULT`. It changes nothing,
    // because the operation does not exist.
    unsafe {
        let set_bytes = size_of::<u64>();
        let result = libc::syscall(
            libc::SYS_rt_sigprocmask,
            NO_OPERATION,
            address,
            ptr::null_mut::<u64>(),
            set_bytes,
        );
        // For address 0, which means that there is no set, the call succeeds.
        result != 0 && *libc::__errno_location() != libc::EFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_reads_only_readable_memory() {
        let words = [1_usize, 2];
        let at = words.as_ptr() as usize;
        let mut memory = Memory::new();
        assert_eq!(memory.word(at + 8), Some(2));
        for absent in [0, 8, at + 1, 1 << 63, usize::MAX - 7, 0x0000_7fff_ffff_f000] {
            assert_eq!(memory.word(absent), None, "{absent:#x}");
        }
        assert_eq!(memory.word(at), Some(1));
    }
}
