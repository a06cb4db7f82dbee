//! Zeroed large blocks cost what was used before in them, and no more. One test, because it needs a heap of its own.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate_aligned, allocate_aligned_zeroed, allocate_zeroed, free};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// How many bytes of a block have pages.
fn resident(block: NonNull<u8>, size: usize) -> usize {
    // The size of a page may be larger; then there are fewer.
    let mut pages = vec![0_u8; size / PAGE];
    // SAFETY: the block is mapped, and the list is long enough.
    let result = unsafe { libc::mincore(block.as_ptr().cast(), size, pages.as_mut_ptr()) };
    assert_eq!(result, 0);
    pages.iter().filter(|&&page| page & 1 != 0).count() * PAGE
}

fn is_zero(block: NonNull<u8>, size: usize) -> bool {
    // SAFETY: it is that large, and this function's caller's.
    unsafe { std::slice::from_raw_parts(block.as_ptr(), size) }.iter().all(|&byte| byte == 0)
}

#[test]
fn zeroed_allocation_clears_only_used_pages() {
    // The kernel may make a huge page of what is used here and what is not, at any time.
    // SAFETY: plain numbers; it is about this process alone.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
    // Where a huge page begins, as the next one does.
    let used = allocate_aligned(MIB / 2, 2 * MIB).unwrap();
    // SAFETY: it is that large; and nobody uses it then.
    unsafe {
        used.write_bytes(0xff, MIB / 2);
        free(used);
    }
    let block = allocate_zeroed(64 * MIB).unwrap();
    assert_eq!(block, used, "it is in another place, and says nothing");
    assert!(resident(block, 64 * MIB) <= MIB, "{} bytes", resident(block, 64 * MIB));
    assert!(is_zero(block, 64 * MIB));
    // An alignment makes no difference.
    for align in [16, 4096, 2 * MIB] {
        let block = allocate_aligned_zeroed(16 * MIB, align).unwrap();
        assert!(block.addr().get().is_multiple_of(align));
        assert_eq!(resident(block, 16 * MIB), 0);
        assert!(is_zero(block, 16 * MIB));
    }
}
