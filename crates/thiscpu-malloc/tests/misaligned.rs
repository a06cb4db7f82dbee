//! Frees of addresses that no block can begin at, by Rust's functions.

#[path = "common/signal.rs"]
mod signal;

use std::ptr::NonNull;

use signal::signal_of;
use thiscpu_malloc::{allocate, enable_counting, free, resize, usable_size};

fn block(size: usize) -> NonNull<u8> {
    allocate(size).expect("there is memory")
}

#[test]
fn misaligned_address_aborts_at_once() {
    type Use = fn(NonNull<u8>);
    let uses: [Use; 3] = [
        // SAFETY: the error is what this test is about; the child ends by it.
        |address| unsafe { free(address) },
        // SAFETY: the child ends by the error, so it uses no result.
        |address| unsafe { _ = resize(address, 1) },
        // SAFETY: the child ends by the error, so it uses no result.
        |address| unsafe { _ = usable_size(address) },
    ];
    for counts in [false, true] {
        let wrong = [(100, 1), (100, 8), (8, 4), (1024, 24), (4000, 1), (300_000, 8)];
        // Multiples of 16, and not of what divides the size of the block.
        let inner = [(64, 16), (64, 48), (300, 32), (1024, 128), (16_384, 240)];
        for (size, offset) in wrong.into_iter().chain(inner) {
            for (number, wrong) in uses.into_iter().enumerate() {
                let signal = signal_of(|| {
                    if counts {
                        enable_counting();
                    }
                    // The first calls enable the fast path.
                    for _ in 0..10 {
                        // SAFETY: the block is allocated, and not used any more.
                        unsafe { free(block(size)) };
                    }
                    // SAFETY: the offset is less than the size.
                    wrong(unsafe { block(size).add(offset) });
                    true
                });
                assert_eq!(signal, libc::SIGABRT, "use {number} of {size} + {offset}");
            }
        }
    }
}

/// Uses the blocks whose addresses look misaligned, and are not.
fn use_blocks_of_8_bytes() -> bool {
    let blocks: Vec<_> = (0..1000).map(|_| block(8)).collect();
    assert!(blocks.iter().any(|block| !block.as_ptr().addr().is_multiple_of(16)));
    for &block in &blocks {
        // SAFETY: the block is allocated with that many bytes.
        unsafe {
            block.write_bytes(1, 8);
            assert_eq!(usable_size(block), 8);
            free(block);
        }
    }
    let again = block(8);
    assert!(blocks.contains(&again));
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free(again) };
    true
}

#[test]
fn blocks_of_8_bytes_are_freed_and_used_again() {
    assert_eq!(signal_of(use_blocks_of_8_bytes), 0, "the fast path");
    let counted = || {
        enable_counting();
        use_blocks_of_8_bytes()
    };
    assert_eq!(signal_of(counted), 0, "the general path");
}
