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
        for (size, offset) in [(100, 1), (100, 8), (8, 4), (1024, 24), (4000, 1), (300_000, 8)] {
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

/// Checks the blocks whose addresses look misaligned, and are not.
#[test]
fn blocks_of_8_bytes_are_freed_and_used_again() {
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
}
