//! Spaces that are not where they are otherwise, because something else is there, or have little room. Each is a child's, whose first use of memory it is.
#![cfg(target_arch = "x86_64")]

#[path = "common/fast_free.rs"]
mod fast_free;
#[path = "common/signal.rs"]
mod signal;

use fast_free::{free_asm, misses};
use signal::{UNTESTED, signal_of};
use thiscpu_malloc::export::thiscpu::{Tier, tier};
use thiscpu_malloc::{allocate, free};

const GIB: usize = 1 << 30;
const TIB: usize = 1 << 40;
const COUNT: usize = 10_000;

/// Has something be where the space is otherwise, at 2 to 7 and at 32 to 65 TiB; whether that could be had.
fn occupy() -> bool {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    [(2 * TIB, 5 * TIB), (32 * TIB, 33 * TIB)].into_iter().all(|(start, bytes)| {
        // SAFETY: it replaces nothing, and stays.
        let place = unsafe { libc::mmap(start as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
        place as usize == start
    })
}

/// Leaves the process so much address space more than it has, if it may have that.
fn limit(room: usize) -> bool {
    let sizes = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages: usize = sizes.split(' ').next().and_then(|size| size.parse().ok()).expect("a size");
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain structures.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut limit), 0);
        limit.rlim_cur = (pages * 4096 + room) as u64;
        libc::setrlimit(libc::RLIMIT_AS, &raw const limit) == 0
    }
}

/// Blocks come and go; whether those that go are found at hand.
fn come_and_go() -> bool {
    for _ in 0..20 {
        let blocks: Vec<_> = (0..COUNT).map(|_| allocate(512).unwrap()).collect();
        for (index, block) in blocks.into_iter().enumerate() {
            // SAFETY: it is nobody's.
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

/// Addresses far behind what there is are found out.
fn stray() {
    let first = allocate(64).unwrap();
    for far in [GIB / 2, 8 * GIB, 100 * GIB, 600 * GIB] {
        // SAFETY: it ends the process.
        let signal = signal_of(|| unsafe {
            free_asm(first.as_ptr().wrapping_byte_add(far));
            true
        });
        assert_eq!(signal, libc::SIGABRT, "{far} bytes behind a block");
    }
    // SAFETY: a block of ours that is nobody's.
    unsafe { free_asm(first.as_ptr()) };
}

/// A child that has so much room does that.
fn child(is_elsewhere: bool, room: usize, is_at_hand: bool) {
    let signal = signal_of(|| {
        if (is_elsewhere && !occupy()) || !limit(room) {
            return false;
        }
        assert!(tier() == Ok(Tier::Atomic) || come_and_go() == is_at_hand);
        stray();
        true
    });
    match signal {
        UNTESTED => eprintln!("not tested: something is mapped there, or limits cannot be set"),
        _ => assert_eq!(signal, 0, "with {room} bytes of room, elsewhere: {is_elsewhere}"),
    }
}

#[test]
fn fast_free_is_off_when_arena_is_moved_and_small() {
    child(true, GIB, false);
}

#[test]
fn fast_free_covers_a_moved_arena_when_it_is_large() {
    child(true, 200 * GIB, true);
    child(true, 700 * GIB, true);
}

#[test]
fn fast_free_is_off_when_address_space_is_scarce() {
    child(false, GIB, false);
    child(false, 200 * GIB, true);
}
