//! A space that has few units, because where it would be is something else and there is a limit. One test, because it is about the whole process.
#![cfg(target_arch = "x86_64")]

#[path = "common/signal.rs"]
mod signal;

use std::ptr::{self, NonNull};

use signal::signal_of;
use thiscpu_malloc::{allocate, define_free, free};

define_free!(
    /// # Safety
    ///
    /// The block is null, or from `allocate`, and nobody uses it.
    fn free_at_hand(*mut u8), in ".text.free"
);

const TIB: usize = 1 << 40;
const COUNT: usize = 10_000;

/// Has something be where the space is otherwise.
fn occupy(start: usize, bytes: usize) -> bool {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: it replaces nothing, and stays.
    let place = unsafe { libc::mmap(start as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
    place as usize == start
}

/// Leaves the process a GiB of address space more than it has.
fn limit() {
    let sizes = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages: u64 = sizes.split(' ').next().and_then(|size| size.parse().ok()).expect("a size");
    let room = libc::rlimit { rlim_cur: pages * 4096 + (1 << 30), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a plain structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const room) }, 0);
}

#[test]
fn few_units_are_told_from_what_is_none() {
    // All that there is at 2 to 7 and at 32 to 65 TiB.
    if !(occupy(2 * TIB, 5 * TIB) && occupy(32 * TIB, 33 * TIB)) {
        return eprintln!("not tested: something is mapped there");
    }
    limit();
    for _ in 0..20 {
        let blocks: Vec<_> = (0..COUNT).map(|_| allocate(512).unwrap()).collect();
        for (index, block) in blocks.into_iter().enumerate() {
            // SAFETY: it is nobody's.
            unsafe {
                match index % 2 {
                    0 => free_at_hand(block.as_ptr()),
                    _ => free(block),
                }
            }
        }
    }
    let first = allocate(64).unwrap();
    // Behind all units there are, and before those that there could be.
    let stray = first.as_ptr().wrapping_byte_add(8 << 30);
    // SAFETY: it ends the process.
    assert_eq!(signal_of(|| unsafe { free_at_hand(stray) }), libc::SIGABRT);
    // SAFETY: as above.
    let by_the_other = || unsafe { free(NonNull::new(stray).unwrap()) };
    assert_eq!(signal_of(by_the_other), libc::SIGABRT);
    // SAFETY: null, and a block of ours that is nobody's.
    unsafe {
        free_at_hand(ptr::null_mut());
        free_at_hand(first.as_ptr());
    }
}
