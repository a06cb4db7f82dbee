//! Reading words that may not be there.
//!
//! Whoever walks a stack goes where tables and saved registers send it, and those of hand-written or generated code may be
//! wrong. A program that is well must not die of that. So the kernel is asked first: `rt_sigprocmask` copies the set it is
//! given before it finds that there is nothing to do with it, and says `EFAULT` where it cannot. No sandbox denies that call,
//! it works in signal handlers, and leaves nothing behind.

use core::ptr;

/// Smaller than or as large as every page size, so what is true of one byte of it is true of all.
const PAGE: usize = 4096;

/// Reads words, and remembers which page it has asked about last.
pub(super) struct Memory {
    readable_page: Option<usize>,
}

impl Memory {
    pub(super) fn new() -> Memory {
        Memory { readable_page: None }
    }

    /// The word at `address`, if there is one. Changes `errno`.
    pub(super) fn word(&mut self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        let page = address / PAGE;
        if self.readable_page != Some(page) {
            self.readable_page = is_readable(address).then_some(page);
            self.readable_page?;
        }
        // SAFETY: the kernel could read this page a moment ago, and it is one that a caller's frame lies on, which nobody
        // unmaps while the caller waits; or one that a table names by mistake, and then this is no worse than not looking at
        // all. The read is volatile: what it gives is only ever used as a number.
        Some(unsafe { ptr::read_volatile(address as *const usize) })
    }
}

fn is_readable(address: usize) -> bool {
    const NOTHING_TO_DO: i32 = -1;
    // SAFETY: the kernel only reads 8 bytes at the address, or refuses to; it changes nothing, as there is no such operation.
    unsafe {
        let set_bytes = size_of::<u64>();
        let result = libc::syscall(
            libc::SYS_rt_sigprocmask,
            NOTHING_TO_DO,
            address,
            ptr::null_mut::<u64>(),
            set_bytes,
        );
        // It succeeds where it is given no set, that is, for address 0.
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
