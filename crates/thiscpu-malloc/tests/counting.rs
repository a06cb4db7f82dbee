//! While calls are counted all of them go a longer way, and blocks come and go as before. One test, because counting does not end.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, class_stats, enable_counting, free, stats, trim};

/// More than lanes hold of that size.
fn many(size: usize) -> usize {
    (512 * 1024 / size).min(1_100)
}

fn fill(block: NonNull<u8>, size: usize) {
    // SAFETY: it is that large, and in nobody else's hands.
    unsafe { block.write_bytes(size as u8, size) };
}

fn is_whole(block: NonNull<u8>, size: usize) -> bool {
    // SAFETY: it was filled.
    unsafe { std::slice::from_raw_parts(block.as_ptr(), size) }
        .iter()
        .all(|&byte| byte == size as u8)
}

#[test]
fn counting_returns_blocks_to_their_class() {
    // Some are freed while calls are counted that were had before.
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
            assert!(is_whole(block, size), "one of {size} bytes is not as it was");
            // SAFETY: it is from there, once, and not used any more.
            unsafe { free(block) };
        }
        // What came to another class is noticed when it goes back to its slab, and ends the process.
        trim(0);
    }
    for class in class_stats() {
        let many = many(class.size) as u64;
        let is_all = class.allocations >= many && class.frees >= 2 * many;
        assert!(is_all, "{class:?}, {:?}", stats());
    }
}
