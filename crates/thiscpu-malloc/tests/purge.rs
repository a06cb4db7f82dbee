//! Purging by allocations: free pages return to the system although the program frees nothing.
//!
//! Each call does little of it. One test, because it is about the whole process.

use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, free};
use thiscpu_test_support::is_quick;

const MEBIBYTE: usize = 1 << 20;
/// More than may stay dirty.
const BYTES: usize = 40 * MEBIBYTE;
/// The most that one call purges.
const PURGED_MAX: usize = 8 * MEBIBYTE;

/// Returns the number of resident bytes after an address. The allocator never unmaps them.
fn resident(address: usize) -> usize {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (start, mut pages) = (address & !(page - 1), vec![0; BYTES / page]);
    // SAFETY: all pages are mapped, and the vector has a byte for each.
    assert_eq!(unsafe { libc::mincore(start as *mut _, BYTES, pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|state| **state & 1 != 0).count() * page
}

#[test]
fn alloc_purges_at_most_eight_mib() {
    if is_quick() {
        return;
    }
    let block = allocate(BYTES).unwrap();
    // SAFETY: the block has this size, and this function owns it.
    unsafe { block.write_bytes(1, BYTES) };
    let address = block.as_ptr().expose_provenance();
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free(block) };
    let mut before = resident(address);
    assert!(
        before > BYTES - MEBIBYTE,
        "{before} bytes: nothing was kept, so this test shows nothing"
    );
    for _ in 0..10_000 {
        allocate(4096).unwrap();
        let now = resident(address);
        assert!(before <= now + PURGED_MAX, "one call has purged {} bytes", before - now);
        if now < BYTES / 2 {
            return;
        }
        before = now;
        sleep(Duration::from_millis(1));
    }
    panic!("{before} bytes stay resident");
}
