//! Blocks while calls are counted, when no call takes the fast path.
//!
//! One test, because counting cannot be disabled again.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, class_stats, enable_counting, free, stats, trim};

/// Returns a number of blocks that is more than lanes hold.
fn many(size: usize) -> usize {
    (512 * 1024 / size).min(1_100)
}

fn fill(block: NonNull<u8>, size: usize) {
    // SAFETY: the block has this size, and the caller owns it.
    unsafe { block.write_bytes(size as u8, size) };
}

fn is_filled(block: NonNull<u8>, size: usize) -> bool {
    // SAFETY: the block has this size, and `fill` has initialized it.
    unsafe { std::slice::from_raw_parts(block.as_ptr(), size) }
        .iter()
        .all(|&byte| byte == size as u8)
}

#[test]
fn counting_returns_blocks_to_their_class() {
    // Blocks that were allocated before are freed while calls are counted.
    for is_counted in [false, true] {
        let sizes = class_stats().map(|class| class.size);
        let blocks: Vec<_> = sizes
            .flat_map(|size| (0..many(size)).map(move |_| (allocate(size).unwrap(), size)))
            .inspect(|&(block, size)| fill(block, size))
            .collect();
        if !is_counted {
            enable_counting();
        }
        for &(block, size) in &blocks {
            assert!(is_filled(block, size), "a block of {size} bytes has changed");
            // SAFETY: the block is allocated, and not used any more.
            unsafe { free(block) };
        }
        // If a block was freed to another class, its slab notices that now, and the process aborts.
        trim(0);
    }
    for class in class_stats() {
        let many = many(class.size) as u64;
        let is_all = class.allocations >= many && class.frees >= 2 * many;
        assert!(is_all, "{class:?}, {:?}", stats());
    }
}
