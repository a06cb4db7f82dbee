//! Blocks from 32 KiB to 4 MiB come from classes of their own.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use thiscpu_malloc::__test_support::bytes_outside_slabs;
use thiscpu_malloc::{
    allocate, allocate_aligned, class_stats, enable_counting, free, resize, stats, trim,
    usable_size,
};
use thiscpu_test_support::{child, cpus};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Returns the sizes of the large classes.
fn sizes() -> Vec<usize> {
    class_stats().map(|class| class.size).filter(|&size| size > 32 * KIB).collect()
}

fn give_back(block: NonNull<u8>) {
    // SAFETY: callers pass a block that is allocated and not used any more.
    unsafe { free(block) };
}

fn usable(block: NonNull<u8>) -> usize {
    // SAFETY: callers pass an allocated block.
    unsafe { usable_size(block) }
}

fn trades() -> u64 {
    class_stats().map(|class| class.trades).sum()
}

#[test]
fn large_classes_have_sixteen_steps_in_each_doubling() {
    let sizes = sizes();
    assert_eq!(sizes.len(), 7 * 16);
    assert_eq!((sizes[0], sizes[16], sizes[111]), (34 * KIB, 68 * KIB, 4 * MIB));
    for pair in sizes.windows(2) {
        assert!((pair[1] - pair[0]) * 16 <= pair[0]);
    }
}

/// Checks that warm calls make no trade, which takes locks that other CPUs share.
#[test]
fn warm_pairs_of_large_blocks_never_trade() {
    child::assert_holds(|| {
        if !cpus::confine(cpus::tid(), [cpus::current() as usize]) {
            return false;
        }
        // Blocks that other tests left in the lane would serve smaller sizes.
        trim(0);
        let mut blocks: Vec<NonNull<u8>> = Vec::with_capacity(8);
        let mut has_traded = |size| {
            blocks.extend((0..8).map(|_| allocate(size).unwrap()));
            let before = trades();
            for pair in 0..1_000 {
                // Each block is replaced by one whose size differs a little.
                give_back(blocks[pair % 8]);
                blocks[pair % 8] = allocate(size - pair % 8).unwrap();
                assert_eq!(usable(blocks[pair % 8]), size);
            }
            let has_traded = trades() != before;
            blocks.drain(..).for_each(give_back);
            has_traded
        };
        // Decay empties sizes that trade nothing for 100 ms. If this process waits for a CPU for so
        // long, that is no fault of the pairs, which are then made again.
        let mut never_trades = |size| loop {
            let began = Instant::now();
            let has_traded = has_traded(size);
            if !has_traded || began.elapsed() < Duration::from_millis(50) {
                return !has_traded;
            }
            // So that the size trades when it begins again, and counts as idle only later.
            trim(0);
        };
        sizes().into_iter().all(&mut never_trades)
    });
}

/// Frees blocks of all large classes on one CPU, and checks what its lane and barns hold.
#[test]
fn lanes_and_barns_bound_bytes_of_all_large_classes() {
    child::assert_holds(|| {
        if !cpus::confine(cpus::tid(), [cpus::current() as usize]) {
            return false;
        }
        trim(0);
        let before = bytes_outside_slabs();
        (1..4).all(|blocks_of_each| {
            let all = sizes().into_iter().flat_map(|size| (0..blocks_of_each).map(move |_| size));
            let blocks: Vec<_> = all.map(|size| allocate(size).unwrap()).collect();
            blocks.into_iter().for_each(give_back);
            // The lane: 16 MiB, and the sheaf that the last call installed. The barns: 16 MiB and
            // an eighth of the memory that was in use, with the unused part of slabs. Without these
            // limits, one block of each class would be 99 MiB.
            let used = blocks_of_each * 99 + 80;
            bytes_outside_slabs() - before <= (16 + 4 + 16 + used / 8) * MIB
        })
    });
}

#[test]
fn free_inside_large_block_aborts_at_once() {
    for size in [40 * KIB, 64 * KIB, 600 * KIB, MIB, 3 * MIB] {
        let block = allocate(size).unwrap();
        for inner in [16, 2 * KIB, size / 2, size - 16] {
            let address = block.as_ptr().addr() + inner;
            child::assert_aborts("pointer into the middle of an object", || {
                give_back(NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap());
            });
        }
        give_back(block);
    }
}

#[test]
fn second_free_of_large_block_aborts_at_once() {
    for size in [40 * KIB, 64 * KIB, 600 * KIB, MIB, 3 * MIB] {
        let block = allocate(size).unwrap();
        child::assert_aborts("double free", || {
            give_back(block);
            give_back(block);
        });
        // The free mark is gone, so only the flag of the block says that it is free.
        child::assert_aborts("double free", || {
            give_back(block);
            // SAFETY: the memory of a free block stays mapped, and this child ends.
            unsafe { block.write_bytes(0xff, size) };
            give_back(block);
        });
        child::assert_aborts("double free", || {
            give_back(block);
            usable(block);
        });
        give_back(block);
    }
}

#[test]
fn block_of_strict_alignment_is_a_run() {
    // A slab begins at a multiple of 64 KiB only, so no class has a stricter alignment.
    for align in [128 * KIB, MIB, 2 * MIB] {
        // A chunk in between, or slabs of whole mebibytes might have the alignment by chance.
        let blocks = (0..4).map(|_| {
            let _chunk = allocate(64 * KIB).unwrap();
            allocate_aligned(MIB, align).unwrap()
        });
        let blocks: Vec<_> = blocks.collect();
        for block in blocks {
            assert!(block.addr().get().is_multiple_of(align));
            give_back(block);
        }
    }
}

#[test]
fn growing_block_is_rarely_copied() {
    let mut block = allocate(33 * KIB).unwrap();
    let mut moves = 0;
    for size in (34 * KIB..480 * KIB).step_by(KIB) {
        // SAFETY: the block is allocated, and only its replacement is used afterwards.
        let grown = unsafe { resize(block, size) }.unwrap();
        moves += u32::from(grown != block);
        block = grown;
    }
    give_back(block);
    // Each copy has room for an eighth more; in single steps there were 60 copies.
    assert!(moves <= 24, "{moves} copies");
}

#[test]
fn counts_of_large_blocks_are_those_of_their_classes() {
    child::assert_holds(|| {
        enable_counting();
        let before = stats().allocated_bytes;
        // Blocks of one class, freed into the lane, may serve the class below it.
        let freed: Vec<_> = (0..2).map(|_| allocate(72 * KIB).unwrap()).collect();
        freed.into_iter().for_each(give_back);
        let blocks: Vec<_> = (0..2).map(|_| allocate(68 * KIB).unwrap()).collect();
        let bytes: usize = blocks.iter().map(|&block| usable(block)).sum();
        stats().allocated_bytes - before == bytes
    });
}
