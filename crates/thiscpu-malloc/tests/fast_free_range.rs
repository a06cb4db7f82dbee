//! The fast path of free, for addresses far into the arena and for foreign ones.
//!
//! One test, because it is about the whole process.
#![cfg(target_arch = "x86_64")]

#[path = "common/fast_free.rs"]
mod fast_free;
#[path = "common/signal.rs"]
mod signal;

use std::collections::HashSet;
use std::ptr::NonNull;

use fast_free::{free_asm, misses};
use signal::signal_of;
use thiscpu_malloc::export::thiscpu::{Tier, tier};
use thiscpu_malloc::{allocate, free};

/// More than the arena and its maps have mapped at first.
const FAR: usize = 64 << 30;
const COUNT: usize = 10_000;

/// Returns the signal that ends a child that frees an invalid address.
fn signal_of_free(block: *mut u8) -> i32 {
    // SAFETY: no block is at this address, so the call aborts the child.
    signal_of(|| unsafe {
        free_asm(block);
        true
    })
}

fn address(block: &NonNull<u8>) -> usize {
    block.as_ptr().expose_provenance()
}

#[test]
fn free_fast_path_covers_high_addresses_and_rejects_foreign_ones() {
    // Before the arena exists.
    for stray in [1 << 12, 1 << 46, 1 << 62, 1 << 63, !0 << 12] {
        let signal = signal_of_free(std::ptr::without_provenance_mut(stray + 64));
        assert_eq!(signal, libc::SIGABRT, "{stray:x}");
    }
    let first = allocate(64).unwrap();
    for far in [FAR / 32, FAR / 2, 2 * FAR, 12 * FAR, 20 * FAR] {
        let signal = signal_of_free(first.as_ptr().wrapping_byte_add(far));
        assert_eq!(signal, libc::SIGABRT, "{far} bytes after a block");
    }
    // The chunks of the first block are the first ones. Lower addresses hold no blocks.
    for ahead in [20, 500, 1020, 1030, 100_000].map(|chunks| chunks << 16) {
        let signal = signal_of_free(first.as_ptr().wrapping_byte_sub(ahead));
        assert_eq!(signal, libc::SIGABRT, "{ahead} bytes before a block");
    }
    let Some(large) = allocate(FAR) else {
        return eprintln!("skipped: this machine does not have 64 GiB of address space");
    };
    let end = address(&large) + FAR;
    let mut high = HashSet::new();
    for _ in 0..20 {
        let blocks: Vec<_> = (0..COUNT).map(|_| allocate(512).unwrap()).collect();
        let distinct: HashSet<_> = blocks.iter().map(address).collect();
        assert_eq!(distinct.len(), COUNT, "a block was allocated twice");
        high.extend(distinct.into_iter().filter(|&block| block > end));
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
    assert!(high.len() > COUNT / 2, "only {} blocks are above 64 GiB", high.len());
    assert!(high.len() < 2 * COUNT, "{} blocks were used for {COUNT}", high.len());
    // The first calls may have come before sections were ready.
    assert!(
        tier() == Ok(Tier::Atomic) || misses() < COUNT,
        "{} frees missed the fast path",
        misses()
    );
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free(large) };
}
