//! Zeroed large blocks: only pages that were used before are cleared.
//!
//! One test, because it needs a heap of its own.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate_aligned, allocate_aligned_zeroed, allocate_zeroed, free};

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
}
