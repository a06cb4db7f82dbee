//! Large blocks are advised to use huge pages once they were seen to be dense.

use std::ptr::NonNull;
use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, free, resize, set};
use thiscpu_test_support::is_quick;
use thiscpu_test_support::memory::{Mapping, mappings, reports_flags};

pub(crate) const TEST: super::Test = (
    "large_density::dense_blocks_are_advised_and_sparse_ones_are_not",
    dense_blocks_are_advised_and_sparse_ones_are_not,
);

const MIB: usize = 1 << 20;

/// Returns the number of bytes of a range that are advised.
fn advised(block: NonNull<u8>, bytes: usize) -> usize {
    let start = block.as_ptr().expose_provenance();
    let marked = mappings().into_iter().filter(|mapping| mapping.has("hg"));
    let within = |Mapping { addresses, .. }: Mapping| {
        addresses.end.min(start + bytes).saturating_sub(addresses.start.max(start))
    };
    marked.map(within).sum()
}

/// Writes a byte at each multiple of `step` in a range of a block.
fn touch(block: NonNull<u8>, from: usize, to: usize, step: usize) {
    for at in (from..to).step_by(step) {
        // SAFETY: the callers pass ranges of blocks that they own.
        unsafe { block.byte_add(at).write(1) };
    }
}

/// Allocates other runs, until the block is advised or all looks at it are over.
fn is_advised_later(block: NonNull<u8>, bytes: usize) -> bool {
    is_advised_by(5 * MIB, block, bytes)
}

/// Allocates blocks of a size, until the block is advised or all looks at it are over.
fn is_advised_by(size: usize, block: NonNull<u8>, bytes: usize) -> bool {
    (0..300).any(|_| {
        sleep(Duration::from_millis(10));
        give_back(allocate(size).unwrap());
        advised(block, bytes) > 0
    })
}

fn give_back(block: NonNull<u8>) {
    // SAFETY: callers pass a block that is allocated and not used any more.
    unsafe { free(block) };
}

fn dense_blocks_are_advised_and_sparse_ones_are_not() {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let has_huge_pages = std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("/sys");
    let first = allocate(MIB).unwrap();
    if is_quick() {
        return;
    }
    if !has_huge_pages || page != 4096 || !reports_flags() {
        return eprintln!("skipped: there are no huge pages of 2 MiB, or none are reported");
    }
    // First, because slabs are only advised where memory is fresh.
    set("thp", "never").unwrap();
    let small: Vec<_> = (0..32 * MIB / 2048).map(|_| allocate(2048).unwrap()).collect();
    let is_any = mappings().iter().any(|mapping| mapping.has("hg"));
    assert!(!is_any, "slabs are advised although huge pages are off");
    set("thp", "dense").unwrap();

    let blocks = [(); 4].map(|()| allocate(64 * MIB).unwrap());
    let [touched, sparse, dense, grown] = blocks;
    assert!(blocks.iter().all(|&block| advised(block, 64 * MIB) == 0), "advised when allocated");
    touch(touched, 0, 64 * MIB, MIB);
    touch(sparse, 0, 16 * MIB, 4096);
    touch(sparse, 16 * MIB, 64 * MIB, MIB);
    touch(dense, 0, 40 * MIB, 4096);
    assert!(is_advised_later(dense, 64 * MIB), "a dense block is not advised");
    assert_eq!(advised(dense, 64 * MIB), 64 * MIB, "a part of the block is not advised");
    assert!(!is_advised_later(touched, 64 * MIB), "a block with a page in each MiB is advised");
    assert_eq!(advised(sparse, 64 * MIB), 0, "a block that is dense only at its start is advised");

    // A block is also looked at when it grows, and takes its advice along.
    touch(grown, 0, 64 * MIB, 4096);
    // SAFETY: the block is allocated, and only its replacement is used.
    let grown = unsafe { resize(grown, 100 * MIB) }.unwrap();
    assert!(is_advised_later(grown, 100 * MIB));
    touch(grown, 64 * MIB, 100 * MIB, 4096);
    // SAFETY: the block is allocated, and only its replacement is used.
    let grown = unsafe { resize(grown, 200 * MIB) }.unwrap();
    assert_eq!(advised(grown, 200 * MIB), 200 * MIB, "a grown block has lost its advice");

    // Calls for small blocks look, too.
    let other = allocate(64 * MIB).unwrap();
    touch(other, 0, 64 * MIB, 4096);
    assert!(is_advised_by(100, other, 64 * MIB), "nothing looks while only small blocks are used");
    [touched, sparse, dense, grown, other, first].into_iter().for_each(give_back);
    assert_eq!(advised(first, 2048 * MIB), 0, "free memory is advised");
    small.into_iter().for_each(give_back);
}
