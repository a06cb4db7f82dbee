//! Slabs ask for huge pages once there are many, and until some of them are given back. One test, because it is about the whole process.

#[path = "common/mappings.rs"]
mod mappings;

use std::ptr::NonNull;

use mappings::mappings;
use thiscpu_malloc::{allocate, free, stats, trim};

const MIB: usize = 1 << 20;
const ALL: usize = 64 * MIB;
const SIZE: usize = 2048;

/// How many bytes ask for huge pages.
fn asked() -> usize {
    let asking = mappings().into_iter().filter(|mapping| mapping.has("hg"));
    asking.map(|mapping| mapping.to - mapping.from).sum()
}

/// How many bytes have pages in the mapping of a block.
fn resident(block: NonNull<u8>) -> usize {
    let address = block.as_ptr().expose_provenance();
    let all = mappings();
    let of_block = all.iter().find(|mapping| (mapping.from..mapping.to).contains(&address));
    let said = of_block.expect("it is mapped").said("Rss:");
    1024 * said.trim_end_matches(" kB").parse::<usize>().expect("a number")
}

/// Whether memory is one node's, and there are huge pages of 2 MiB to ask for.
fn may_ask() -> bool {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/online");
    let is_one = nodes.is_ok_and(|nodes| nodes.trim() == "0");
    // SAFETY: it reads a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    is_one && page == 4096 && std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("/sys")
}

#[test]
fn slabs_advise_huge_pages_while_they_fill_them() {
    if mappings().is_empty() || !may_ask() {
        return eprintln!("not tested: no slab asks here, or the kernel does not say so");
    }
    let few: Vec<_> = (0..3 * MIB / SIZE).map(|_| allocate(SIZE).unwrap()).collect();
    assert_eq!(asked(), 0, "slabs of 3 MiB ask");
    let before = resident(few[0]);
    // In the last huge page there is some that no slab has.
    for bytes in [ALL, ALL + MIB / 2, ALL + MIB] {
        let many: Vec<_> = (0..bytes / SIZE).map(|_| allocate(SIZE).unwrap()).collect();
        assert!(asked() > bytes * 7 / 8, "{} bytes ask of {bytes}", asked());
        // SAFETY: nobody uses them.
        many.into_iter().for_each(|block| unsafe { free(block) });
        assert!(trim(0), "it was free");
        assert_eq!(asked(), 0, "what is free asks");
        let more = resident(few[0]).saturating_sub(before);
        assert!(more < MIB / 4, "{more} bytes stay of {bytes}");
    }
    what_nobody_took_is_dropped();
    // SAFETY: as above.
    few.into_iter().for_each(|block| unsafe { free(block) });
}

/// Slabs of many classes each begin elsewhere.
fn what_nobody_took_is_dropped() {
    let classes = (2..=16).map(|sixteenths| sixteenths * 16).flat_map(|size| [size, 8 * size]);
    let blocks: Vec<_> = classes
        .flat_map(|size| (0..700 * 1024 / size).map(move |_| allocate(size).unwrap()))
        .collect();
    assert!(asked() > 2 * MIB, "{} bytes ask", asked());
    let said = || {
        let said = stats();
        said.system_bytes - said.used_bytes
    };
    assert!(said() > 2 * MIB, "what nobody took is not counted: {}", said());
    trim(0);
    assert!(said() < 2 * MIB, "{} bytes stay", said());
    // SAFETY: nobody uses them.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
    trim(0);
}
