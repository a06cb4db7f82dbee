//! Arenas that cannot be at their usual addresses, or that must be small.
//!
//! Each test forks a child, in which the allocator is used for the first time.
#![cfg(target_arch = "x86_64")]

#[path = "common/fast_free.rs"]
mod fast_free;
#[path = "common/signal.rs"]
mod signal;

use fast_free::{free_asm, misses};
use signal::{UNTESTED, signal_of};
use thiscpu_malloc::export::thiscpu::{Tier, tier};
use thiscpu_malloc::{allocate, free};
use thiscpu_test_support::memory;

const GIB: usize = 1 << 30;
const TIB: usize = 1 << 40;
const COUNT: usize = 10_000;

/// Maps the usual addresses of the arena, 2 to 7 and 32 to 65 TiB, if they are free.
///
/// Returns whether that worked.
fn occupy() -> bool {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    [(2 * TIB, 5 * TIB), (32 * TIB, 33 * TIB)].into_iter().all(|(start, bytes)| {
        // SAFETY: MAP_FIXED_NOREPLACE does not replace other mappings.
        let mapped = unsafe { libc::mmap(start as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
        mapped as usize == start
    })
}

/// Limits the process to `room` more bytes of address space. Returns whether that worked.
fn limit(room: usize) -> bool {
    let size = memory::status_bytes("self", "VmSize").expect("/proc");
    memory::set_limit(libc::RLIMIT_AS, size + room as u64).is_ok()
}

/// Allocates and frees many blocks. Returns whether the fast path could free them.
fn churn() -> bool {
    for _ in 0..20 {
        let blocks: Vec<_> = (0..COUNT).map(|_| allocate(512).unwrap()).collect();
        for (index, block) in blocks.into_iter().enumerate() {
            // SAFETY: the block is allocated, and not used any more.
            unsafe {
                match index % 2 {
                    0 => free_asm(block.as_ptr()),
                    _ => free(block),
                }
            }
        }
    }
    misses() < COUNT
}

/// Checks that frees of addresses far after all blocks abort.
fn free_stray_addresses() {
    let first = allocate(64).unwrap();
    for far in [GIB / 2, 8 * GIB, 100 * GIB, 600 * GIB] {
        // SAFETY: no block is at this address, so the call aborts the child.
        let signal = signal_of(|| unsafe {
            free_asm(first.as_ptr().wrapping_byte_add(far));
            true
        });
        assert_eq!(signal, libc::SIGABRT, "{far} bytes after a block");
    }
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free_asm(first.as_ptr()) };
}

/// Checks in a child whether the fast path frees blocks, depending on where the arena can be.
fn check_in_child(is_moved: bool, room: usize, is_fast: bool) {
    let signal = signal_of(|| {
        if (is_moved && !occupy()) || !limit(room) {
            return false;
        }
        assert!(tier() == Ok(Tier::Atomic) || churn() == is_fast);
        free_stray_addresses();
        true
    });
    match signal {
        UNTESTED => eprintln!("skipped: the addresses are in use, or limits cannot be set"),
        _ => assert_eq!(signal, 0, "with {room} bytes of room, moved: {is_moved}"),
    }
}

#[test]
fn fast_free_is_off_when_arena_is_moved_and_small() {
    check_in_child(true, GIB, false);
}

#[test]
fn fast_free_covers_a_moved_arena_when_it_is_large() {
    check_in_child(true, 200 * GIB, true);
    check_in_child(true, 700 * GIB, true);
}

#[test]
fn fast_free_is_off_when_address_space_is_scarce() {
    check_in_child(false, GIB, false);
    check_in_child(false, 200 * GIB, true);
}
