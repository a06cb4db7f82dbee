//! Large blocks ask for huge pages, and what is freed no longer has them once its pages were dropped. One test, because it is about
//! the whole process.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, allocate_zeroed, free, resize, trim};

const MIB: usize = 1 << 20;

/// What is said of mappings: from where to where, and their flags.
fn mappings() -> Vec<(usize, usize, String)> {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    let (mut range, mut all) = ((0, 0), Vec::new());
    for line in maps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((begin, end)) = first.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).expect("an address");
            range = (address(begin), address(end));
        } else if first == "VmFlags:" {
            all.push((range.0, range.1, format!("{rest} ")));
        }
    }
    all
}

/// How many bytes of a range are mapped with a flag.
fn bytes_with(flag: &str, start: usize, bytes: usize) -> usize {
    let flag = format!("{flag} ");
    let marked = mappings().into_iter().filter(|(.., flags)| flags.contains(&flag));
    marked.map(|(from, to, _)| to.min(start + bytes).saturating_sub(from.max(start))).sum()
}

fn address(block: NonNull<u8>) -> usize {
    block.as_ptr().expose_provenance()
}

#[test]
fn large_blocks_ask_for_them_while_they_live() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("/sys") {
        return eprintln!("not tested: this kernel has no huge pages for memory of no file");
    }
    let small = allocate(MIB).unwrap();
    let large = [allocate(9 * MIB).unwrap(), allocate_zeroed(4 * MIB).unwrap()];
    for (block, bytes) in large.iter().zip([8 * MIB, 4 * MIB]) {
        assert!(address(*block).is_multiple_of(2 * MIB), "{block:?} begins amid a huge page");
        assert_eq!(bytes_with("hg", address(*block), 9 * MIB), bytes, "of those at {block:?}");
    }
    assert_eq!(bytes_with("nh", address(small), MIB), MIB);

    // SAFETY: a block, and what is in place of it, each once.
    let grown = unsafe {
        let grown = resize(large[0], 16 * MIB).unwrap();
        free(large[1]);
        let grown = resize(grown, 21 * MIB).unwrap();
        free(small);
        grown
    };
    let (start, end) = (address(grown), address(grown) + 21 * MIB);
    let whole = end / (2 * MIB) * 2 * MIB - start.next_multiple_of(2 * MIB);
    assert_eq!(bytes_with("hg", start, 21 * MIB), whole);

    // SAFETY: a block, and nobody uses it any more.
    unsafe { free(grown) };
    trim(0);
    assert_eq!(bytes_with("hg", 0, usize::MAX), 0, "free memory asks for huge pages");
}
