//! With `thp=always`, runs of chunks are advised to use huge pages while they are allocated.
//!
//! One test, because it is about the whole process.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, allocate_zeroed, free, resize, set};
use thiscpu_test_support::memory::{Mapping, mappings, reports_flags};

const MIB: usize = 1 << 20;
const HUGE_PAGE: usize = 2 * MIB;

/// Returns the number of bytes of a range whose mapping has a flag.
fn bytes_with(flag: &str, start: usize, bytes: usize) -> usize {
    let marked = mappings().into_iter().filter(|mapping| mapping.has(flag));
    let within = |Mapping { addresses, .. }: Mapping| {
        addresses.end.min(start + bytes).saturating_sub(addresses.start.max(start))
    };
    marked.map(within).sum()
}

fn address(block: NonNull<u8>) -> usize {
    block.as_ptr().expose_provenance()
}

fn give_back(block: NonNull<u8>) {
    // SAFETY: callers pass a block that is allocated and not used any more.
    unsafe { free(block) };
}

fn resized(block: NonNull<u8>, bytes: usize) -> NonNull<u8> {
    // SAFETY: callers pass an allocated block, and only use its replacement afterwards.
    unsafe { resize(block, bytes) }.unwrap()
}

#[test]
fn large_blocks_advise_huge_pages_while_allocated() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("/sys") {
        return eprintln!("skipped: this kernel has no transparent huge pages");
    }
    set("thp", "always").unwrap();
    let small = allocate(MIB).unwrap();
    if !reports_flags() {
        return eprintln!("skipped: this kernel does not report the flags of mappings");
    }
    assert_eq!(bytes_with("nh", address(small), MIB), MIB);
    let sizes = [5 * MIB, 17 * MIB, 4 * MIB + 1];
    let large = sizes.map(|bytes| allocate_zeroed(bytes).unwrap());
    for (block, bytes) in large.into_iter().zip(sizes) {
        let advised = bytes_with("hg", address(block), bytes);
        assert_eq!(advised, bytes, "at {block:?}");
    }
    assert!(
        address(large[1]).is_multiple_of(HUGE_PAGE),
        "a large block is not aligned to a huge page"
    );
    large.into_iter().for_each(give_back);
    for (block, bytes) in large.into_iter().zip(sizes) {
        assert_eq!(bytes_with("hg", address(block), bytes), 0, "free memory is still advised");
    }
    programs_own_advice_ends_with_its_block();

    grown_block_advises_its_new_part();
    moved_block_takes_its_advice_along();
    shrunk_block_withdraws_its_advice();
    advised_blocks_are_limited();
    give_back(small);
}

fn grown_block_advises_its_new_part() {
    // A block that grows becomes a run, although one of this size belongs to a class.
    let block = resized(allocate(MIB).unwrap(), 3 * MIB);
    let in_place = resized(block, 8 * MIB);
    assert_eq!(in_place, block, "the block was moved, so this test shows nothing");
    assert_eq!(bytes_with("hg", address(block), 8 * MIB), 8 * MIB);
    // SAFETY: the advice does not change the contents.
    unsafe { libc::madvise(block.as_ptr().cast(), 8 * MIB, libc::MADV_NOHUGEPAGE) };
    let in_place = resized(block, 21 * MIB);
    assert_eq!(in_place, block, "the block was moved, so this test shows nothing");
    let advised = bytes_with("hg", address(block), 21 * MIB);
    let new = 13 * MIB;
    assert_eq!(advised, new, "the program's own advice for the first 8 MiB was overridden");
    give_back(block);
}

fn moved_block_takes_its_advice_along() {
    let [block, next] = [(); 2].map(|()| allocate(5 * MIB).unwrap());
    let moved = resized(block, 11 * MIB);
    assert_ne!(moved, block, "the block was not moved, so this test shows nothing");
    assert_eq!(bytes_with("hg", address(moved), 11 * MIB), 11 * MIB);
    [moved, next].into_iter().for_each(give_back);
    assert_eq!(bytes_with("hg", address(moved), 11 * MIB), 0, "free memory is still advised");
}

/// Checks that a slab placed in a freed block gets no huge page that the program asked for.
fn programs_own_advice_ends_with_its_block() {
    set("thp", "never").unwrap();
    let block = allocate(5 * MIB).unwrap();
    // SAFETY: the advice changes no memory.
    let advised = unsafe { libc::madvise(block.as_ptr().cast(), 5 * MIB, libc::MADV_HUGEPAGE) };
    assert_eq!((advised, bytes_with("hg", address(block), 5 * MIB)), (0, 5 * MIB));
    give_back(block);
    assert_eq!(bytes_with("hg", address(block), 5 * MIB), 0, "free memory is still advised");
    set("thp", "always").unwrap();
}

fn shrunk_block_withdraws_its_advice() {
    let block = allocate(17 * MIB).unwrap();
    let in_place = resized(block, 9 * MIB);
    assert_eq!(in_place, block, "the block was moved, so this test shows nothing");
    assert_eq!(bytes_with("hg", address(block), 17 * MIB), 9 * MIB);
    let in_place = resized(block, 3 * MIB);
    assert_eq!(in_place, block, "the block was moved, so this test shows nothing");
    assert_eq!(bytes_with("hg", address(block), 17 * MIB), 0, "a small block is advised");
    give_back(block);
}

/// Checks that the number of advised blocks is limited.
///
/// A process has 65,530 mappings by default, and other uses for them.
fn advised_blocks_are_limited() {
    let all: Vec<_> = (0..10_000).map_while(|_| allocate(5 * MIB)).collect();
    if all.len() < 10_000 {
        return eprintln!("skipped: 10,000 large blocks do not fit the address space");
    }
    let last = address(all[9_999]);
    assert_eq!(
        bytes_with("hg", last, 5 * MIB),
        0,
        "the last of {} blocks is advised, too",
        all.len()
    );
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc").lines().count();
    assert!(maps < 20_000, "{maps} mappings");
    all.into_iter().for_each(give_back);
    let block = allocate(5 * MIB).unwrap();
    assert!(bytes_with("hg", address(block), 5 * MIB) > 0, "no block is advised any more");
    give_back(block);
}
