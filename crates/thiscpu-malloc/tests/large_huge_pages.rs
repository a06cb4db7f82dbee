//! Large blocks ask for huge pages while they live. One test, because it is about the whole process.

#[path = "common/mappings.rs"]
mod mappings;

use std::ptr::NonNull;

use mappings::{Mapping, mappings};
use thiscpu_malloc::{allocate, allocate_zeroed, free, resize};

const MIB: usize = 1 << 20;
const HUGE_PAGE: usize = 2 * MIB;

/// How many bytes of a range are mapped with a flag.
fn bytes_with(flag: &str, start: usize, bytes: usize) -> usize {
    let marked = mappings().into_iter().filter(|mapping| mapping.has(flag));
    let within =
        |mapping: Mapping| mapping.to.min(start + bytes).saturating_sub(mapping.from.max(start));
    marked.map(within).sum()
}

fn address(block: NonNull<u8>) -> usize {
    block.as_ptr().expose_provenance()
}

/// How many bytes of a block are huge pages as a whole.
fn whole(block: NonNull<u8>, bytes: usize) -> usize {
    let (start, end) = (address(block), address(block) + bytes);
    end / HUGE_PAGE * HUGE_PAGE - start.next_multiple_of(HUGE_PAGE)
}

fn give_back(block: NonNull<u8>) {
    // SAFETY: each caller has it from `allocate` or `resize`, and does not use it any more.
    unsafe { free(block) };
}

fn resized(block: NonNull<u8>, bytes: usize) -> NonNull<u8> {
    // SAFETY: as above.
    unsafe { resize(block, bytes) }.unwrap()
}

#[test]
fn large_blocks_advise_huge_pages_while_allocated() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("/sys") {
        return eprintln!("not tested: this kernel has no huge pages for memory of no file");
    }
    let small = allocate(MIB).unwrap();
    if mappings().is_empty() {
        return eprintln!("not tested: this kernel does not say what mappings ask for");
    }
    assert_eq!(bytes_with("nh", address(small), MIB), MIB);
    let sizes = [5 * MIB, 17 * MIB, 4 * MIB];
    let large = sizes.map(|bytes| allocate_zeroed(bytes).unwrap());
    for (block, bytes) in large.into_iter().zip(sizes) {
        let asked = bytes_with("hg", address(block), bytes);
        assert_eq!(asked, whole(block, bytes), "of {bytes} at {block:?}");
    }
    assert!(address(large[1]).is_multiple_of(HUGE_PAGE), "a large one begins amid a huge page");
    large.into_iter().for_each(give_back);
    for (block, bytes) in large.into_iter().zip(sizes) {
        assert_eq!(bytes_with("hg", address(block), bytes), 0, "free memory asks for huge pages");
    }

    growing_ones_ask_for_what_is_new();
    small_ones_ask_no_misses();
    not_all_of_many_ask();
    give_back(small);
}

fn growing_ones_ask_for_what_is_new() {
    let block = allocate(3 * MIB).unwrap();
    let in_place = resized(block, 8 * MIB);
    assert_eq!(in_place, block, "it was moved, and says nothing");
    assert_eq!(bytes_with("hg", address(block), 8 * MIB), whole(block, 8 * MIB));
    // SAFETY: what the block holds stays.
    unsafe { libc::madvise(block.as_ptr().cast(), 8 * MIB, libc::MADV_NOHUGEPAGE) };
    let in_place = resized(block, 21 * MIB);
    assert_eq!(in_place, block, "it was moved, and says nothing");
    let (new, all) = (whole(block, 21 * MIB) - whole(block, 8 * MIB), whole(block, 21 * MIB));
    let asked = bytes_with("hg", address(block), 21 * MIB);
    assert_eq!(asked, new, "of {all}: who has declined for the first 8 MiB was not heard");
    give_back(block);
}

fn small_ones_ask_no_misses() {
    let block = allocate(17 * MIB).unwrap();
    let in_place = resized(block, 9 * MIB);
    assert_eq!(in_place, block, "it was moved, and says nothing");
    assert_eq!(bytes_with("hg", address(block), 17 * MIB), 9 * MIB);
    let in_place = resized(block, 3 * MIB);
    assert_eq!(in_place, block, "it was moved, and says nothing");
    assert_eq!(bytes_with("hg", address(block), 17 * MIB), 0, "a small one asks");
    give_back(block);
}

/// A process has 65,530 mappings, as a rule, and other uses for them.
fn not_all_of_many_ask() {
    let all: Vec<_> = (0..10_000).map_while(|_| allocate(5 * MIB)).collect();
    if all.len() < 10_000 {
        return eprintln!("not tested: there is no address space for 10,000 large blocks");
    }
    let last = address(all[9_999]);
    assert_eq!(bytes_with("hg", last, 5 * MIB), 0, "the last of {} asks, too", all.len());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc").lines().count();
    assert!(maps < 20_000, "{maps} mappings");
    all.into_iter().for_each(give_back);
    let block = allocate(5 * MIB).unwrap();
    assert!(bytes_with("hg", address(block), 5 * MIB) > 0, "none asks any more");
    give_back(block);
}
