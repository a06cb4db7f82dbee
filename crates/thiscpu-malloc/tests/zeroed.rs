//! Zeroed blocks of more than 32 KiB: memory that is known to be zero is not touched.
//!
//! One test, because it needs a heap of its own.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, allocate_aligned, allocate_aligned_zeroed, allocate_zeroed, free};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Returns the number of resident bytes of a block.
fn resident(block: NonNull<u8>, size: usize) -> usize {
    // If pages are larger, there are fewer, and the rest of the vector stays 0.
    let mut pages = vec![0_u8; size / PAGE];
    // SAFETY: the block is mapped, and the vector has a byte for each page.
    let result = unsafe { libc::mincore(block.as_ptr().cast(), size, pages.as_mut_ptr()) };
    assert_eq!(result, 0);
    pages.iter().filter(|&&page| page & 1 != 0).count() * PAGE
}

fn is_zero(block: NonNull<u8>, size: usize) -> bool {
    // SAFETY: the block has this size, and the caller owns it.
    unsafe { std::slice::from_raw_parts(block.as_ptr(), size) }.iter().all(|&byte| byte == 0)
}

/// Checks that blocks that were never allocated, in fresh memory, are not touched.
fn class_clears_only_used_blocks() {
    for size in [40 << 10, 600 << 10, 4 * MIB] {
        let blocks: Vec<_> = (0..20).map(|_| allocate_zeroed(size).unwrap()).collect();
        let touched: usize = blocks.iter().map(|&block| resident(block, size)).sum();
        // The first page of each, which says that it is free.
        assert!(touched <= 2 * PAGE * blocks.len(), "{touched} bytes of 20 blocks of {size}");
        for &block in &blocks {
            assert!(is_zero(block, size));
            // SAFETY: the block has this size, and is not used after its free.
            unsafe {
                block.write_bytes(0xff, size);
                free(block);
            }
        }
        // One of these was allocated as it is, which must not hide that it is dirty.
        let dirty = allocate(size).unwrap();
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free(dirty) };
        for _ in 0..30 {
            assert!(is_zero(allocate_zeroed(size).unwrap(), size), "{size}");
        }
    }
}

/// Checks that a block that `malloc` handed out first is cleared when `calloc` gets it.
fn allocation_without_zeros_makes_block_dirty() {
    for size in [50 << 10, MIB] {
        for _ in 0..4 {
            let block = allocate(size).unwrap();
            // SAFETY: the block has this size, and is not used after its free. Its first words stay
            // as they were.
            unsafe {
                block.add(16).write_bytes(0xff, size - 16);
                free(block);
            }
            let block = allocate_zeroed(size).unwrap();
            assert!(is_zero(block, size), "{size}");
        }
    }
}

/// Checks that a slab in chunks that held data is not taken for zeros.
fn slab_in_dirty_chunks_is_cleared() {
    const SIZE: usize = 3 * MIB;
    let used = allocate_aligned(8 * MIB, 2 * MIB).unwrap();
    // SAFETY: the block has this size, and is not used after its free.
    unsafe {
        used.write_bytes(0xff, 8 * MIB);
        free(used);
    }
    let blocks: Vec<_> = (0..4).map(|_| allocate_zeroed(SIZE).unwrap()).collect();
    let start = used.addr().get();
    let is_reused = |block: &NonNull<u8>| (start..start + 8 * MIB).contains(&block.addr().get());
    assert!(blocks.iter().any(is_reused), "no block is in used memory, so this test shows nothing");
    assert!(blocks.into_iter().all(|block| is_zero(block, SIZE)));
}

#[test]
fn zeroed_allocation_clears_only_used_pages() {
    // Otherwise the kernel may make a huge page of used and unused parts at any time.
    // SAFETY: the option takes integers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
    // At the start of a huge page, like the next block.
    let used = allocate_aligned(MIB / 2, 2 * MIB).unwrap();
    // SAFETY: the block has this size, and is not used after its free.
    unsafe {
        used.write_bytes(0xff, MIB / 2);
        free(used);
    }
    let block = allocate_zeroed(64 * MIB).unwrap();
    assert_eq!(block, used, "the block is at another address, so this test shows nothing");
    assert!(resident(block, 64 * MIB) <= MIB, "{} bytes", resident(block, 64 * MIB));
    assert!(is_zero(block, 64 * MIB));
    // Alignments make no difference.
    for align in [16, 4096, 2 * MIB] {
        let block = allocate_aligned_zeroed(16 * MIB, align).unwrap();
        assert!(block.addr().get().is_multiple_of(align));
        assert_eq!(resident(block, 16 * MIB), 0);
        assert!(is_zero(block, 16 * MIB));
    }
    class_clears_only_used_blocks();
    allocation_without_zeros_makes_block_dirty();
    slab_in_dirty_chunks_is_cleared();
}
