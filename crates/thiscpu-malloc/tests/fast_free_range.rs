//! Blocks far into the space, and addresses where none is. One test, because it is about the whole process.
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

/// More than is mapped of anything at first.
const FAR: usize = 64 << 30;
const COUNT: usize = 10_000;

/// The signal that ends a child which frees that.
fn freed(block: *mut u8) -> i32 {
    // SAFETY: it ends the process, or is no block.
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
    // Before anything is there, while it is nowhere.
    for stray in [1 << 12, 1 << 46, 1 << 62, 1 << 63, !0 << 12] {
        let signal = freed(std::ptr::without_provenance_mut(stray + 64));
        assert_eq!(signal, libc::SIGABRT, "{stray:x}");
    }
    let first = allocate(64).unwrap();
    for far in [FAR / 32, FAR / 2, 2 * FAR, 12 * FAR, 20 * FAR] {
        let signal = freed(first.as_ptr().wrapping_byte_add(far));
        assert_eq!(signal, libc::SIGABRT, "{far} bytes behind a block");
    }
    // The units of the first block are the first there are. What is counted in front of them is no block.
    for ahead in [20, 500, 1020, 1030, 100_000].map(|units| units << 16) {
        let signal = freed(first.as_ptr().wrapping_byte_sub(ahead));
        assert_eq!(signal, libc::SIGABRT, "{ahead} bytes in front of a block");
    }
    let Some(large) = allocate(FAR) else {
        return eprintln!("not tested: this machine does not promise 64 GiB");
    };
    let end = address(&large) + FAR;
    let mut far_in = HashSet::new();
    for _ in 0..20 {
        let blocks: Vec<_> = (0..COUNT).map(|_| allocate(512).unwrap()).collect();
        let distinct: HashSet<_> = blocks.iter().map(address).collect();
        assert_eq!(distinct.len(), COUNT, "a block was handed out twice");
        far_in.extend(distinct.into_iter().filter(|&block| block > end));
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
    assert!(far_in.len() > COUNT / 2, "blocks are not behind 64 GiB: {}", far_in.len());
    assert!(far_in.len() < 2 * COUNT, "{} blocks were used for {COUNT}", far_in.len());
    // The first may have come before sections were ready.
    assert!(tier() == Ok(Tier::Atomic) || misses() < COUNT, "{} were not at hand", misses());
    // SAFETY: it is nobody's.
    unsafe { free(large) };
}
