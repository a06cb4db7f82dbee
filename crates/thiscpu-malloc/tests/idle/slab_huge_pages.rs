//! Slabs are advised to use huge pages once there are many, until some of them are returned.

use std::ptr::NonNull;
use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, free, stats, trim};
use thiscpu_test_support::is_quick;
use thiscpu_test_support::memory::{mappings, reports_flags};

pub(crate) const TEST: super::Test = (
    "slab_huge_pages::slabs_advise_huge_pages_while_they_fill_them",
    slabs_advise_huge_pages_while_they_fill_them,
);

const MIB: usize = 1 << 20;
const ALL: usize = 64 * MIB;
const SIZE: usize = 2048;

/// Returns the number of bytes that are advised to use huge pages.
fn advised() -> usize {
    let advised = mappings().into_iter().filter(|mapping| mapping.has("hg"));
    advised.map(|mapping| mapping.addresses.len()).sum()
}

/// Returns the number of resident bytes in the mapping of a block.
fn resident(block: NonNull<u8>) -> usize {
    let address = block.as_ptr().expose_provenance();
    let all = mappings();
    let of_block = all.iter().find(|mapping| mapping.addresses.contains(&address));
    let rss = of_block.expect("it is mapped").field("Rss");
    1024 * rss.trim_end_matches(" kB").parse::<usize>().expect("a number")
}

/// Returns whether there is one NUMA node, and huge pages of 2 MiB exist.
fn can_advise() -> bool {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/online");
    let is_one = nodes.is_ok_and(|nodes| nodes.trim() == "0");
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    is_one && page == 4096 && std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("/sys")
}

fn slabs_advise_huge_pages_while_they_fill_them() {
    if !reports_flags() || !can_advise() {
        return eprintln!("skipped: slabs are not advised here, or the kernel does not report it");
    }
    let few: Vec<_> = (0..3 * MIB / SIZE).map(|_| allocate(SIZE).unwrap()).collect();
    assert_eq!(advised(), 0, "slabs of 3 MiB are advised");
    let before = resident(few[0]);
    // Parts of the last huge page belong to no slab.
    for bytes in [ALL, ALL + MIB / 2, ALL + MIB] {
        let many: Vec<_> = (0..bytes / SIZE).map(|_| allocate(SIZE).unwrap()).collect();
        assert!(advised() > bytes * 7 / 8, "{} bytes of {bytes} are advised", advised());
        // SAFETY: the blocks are allocated, and not used any more.
        many.into_iter().for_each(|block| unsafe { free(block) });
        assert!(trim(0), "nothing was returned");
        assert_eq!(advised(), 0, "free memory is advised");
        let more = resident(few[0]).saturating_sub(before);
        assert!(more < MIB / 4, "{more} bytes stay of {bytes}");
    }
    trim_purges_parts_without_slabs();
    slabs_that_lose_pages_are_not_advised();
    if !is_quick() {
        idle_slabs_stay_advised_while_few_blocks_are_free();
    }
    // SAFETY: the blocks are allocated, and not used any more.
    few.into_iter().for_each(|block| unsafe { free(block) });
}

/// Checks memory that lies between slabs: those of many classes do not fill a huge page.
fn trim_purges_parts_without_slabs() {
    let classes = (2..=16).map(|sixteenths| sixteenths * 16).flat_map(|size| [size, 8 * size]);
    let blocks: Vec<_> = classes
        .flat_map(|size| (0..700 * 1024 / size).map(move |_| allocate(size).unwrap()))
        .collect();
    assert!(advised() > 2 * MIB, "{} bytes are advised", advised());
    let unused = || {
        let stats = stats();
        stats.system_bytes - stats.allocated_bytes
    };
    assert!(unused() > 2 * MIB, "memory without slabs is not counted: {}", unused());
    trim(0);
    assert!(unused() < 2 * MIB, "{} bytes stay", unused());
    // SAFETY: the blocks are allocated, and not used any more.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
    trim(0);
}

/// Checks slabs that all stay in use, and all lose pages.
fn slabs_that_lose_pages_are_not_advised() {
    let mut many: Vec<_> = (0..ALL / SIZE).map(|_| allocate(SIZE).unwrap()).collect();
    assert!(advised() > ALL * 7 / 8, "{} bytes are advised", advised());
    many.sort_unstable();
    let (kept, freed): (Vec<_>, Vec<_>) =
        many.into_iter().enumerate().partition(|(number, _)| number % 16 == 0);
    // SAFETY: the blocks are allocated, and not used any more.
    freed.into_iter().for_each(|(_, block)| unsafe { free(block) });
    assert!(trim(0), "nothing was returned");
    assert_eq!(advised(), 0, "slabs that lost pages are advised");
    // SAFETY: the blocks are allocated, and not used any more.
    kept.into_iter().for_each(|(_, block)| unsafe { free(block) });
    trim(0);
}

/// Makes rare calls for longer than decay takes; returns whether slabs stay advised.
fn stay_advised(bytes: usize) -> bool {
    (0..200).all(|_| {
        sleep(Duration::from_millis(20));
        // SAFETY: the block was just allocated.
        unsafe { free(allocate(100).unwrap()) };
        advised() > bytes
    })
}

/// Checks slabs of which decay could return one page, and later all pages but one.
fn idle_slabs_stay_advised_while_few_blocks_are_free() {
    let many: Vec<_> = (0..ALL / SIZE).map(|_| allocate(SIZE).unwrap()).collect();
    let page_in_slab = |block: &NonNull<u8>| block.as_ptr().addr() / 4096 % 16;
    let free_all = |blocks: Vec<NonNull<u8>>| {
        // SAFETY: the blocks are allocated, and not used any more.
        blocks.into_iter().for_each(|block| unsafe { free(block) });
    };
    let (freed, kept): (Vec<_>, _) = many.into_iter().partition(|block| page_in_slab(block) == 0);
    free_all(freed);
    assert!(stay_advised(ALL * 7 / 8), "{} bytes of {ALL} are advised", advised());
    let (kept, freed): (Vec<_>, _) = kept.into_iter().partition(|block| page_in_slab(block) == 1);
    free_all(freed);
    assert!(!stay_advised(ALL / 2), "slabs of free pages stay advised");
    free_all(kept);
    trim(0);
}
