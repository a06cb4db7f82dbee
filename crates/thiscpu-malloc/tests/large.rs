//! Large blocks: they do not overlap, and calls do not change `errno`.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use thiscpu_malloc::{
    ThisCpuAlloc, allocate, allocate_aligned, allocate_zeroed, free, resize, usable_size,
};
use thiscpu_test_support::random::Random;
use thiscpu_test_support::{child, errno, memory};

const KIB: usize = 1 << 10;

/// A block whose first and last words hold its number.
struct Block {
    at: NonNull<u8>,
    size: usize,
    number: u64,
}

impl Block {
    fn words(&self) -> [*mut u64; 2] {
        let at: *mut u64 = self.at.as_ptr().cast();
        [at, at.wrapping_add(self.size / 8 - 1)]
    }

    fn new(at: NonNull<u8>, size: usize, number: u64) -> Block {
        let block = Block { at, size, number };
        for word in block.words() {
            // SAFETY: both words are in the block.
            unsafe { word.write(number) };
        }
        block
    }

    fn check(&self) {
        // SAFETY: both words are in the block, and were written.
        assert_eq!(self.words().map(|word| unsafe { word.read() }), [self.number; 2]);
        // SAFETY: the block is allocated.
        assert!(unsafe { usable_size(self.at) } >= self.size);
    }

    fn free(self) {
        self.check();
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free(self.at) };
    }
}

/// Allocates, resizes and frees blocks of random sizes and alignments.
fn churn(seed: u64, rounds: u64) {
    let mut random = Random::new(seed);
    let mut next = move |below: u64| random.below(below);
    let mut blocks: BTreeMap<u64, Block> = BTreeMap::new();
    for number in 0..rounds {
        errno::set(77);
        let size = (33 + next(400) as usize * (1 + next(8) as usize)) * KIB;
        let align = 1 << [4, 4, 4, 12, 16, 17, 21][next(7) as usize];
        let at = match next(4) {
            0 => allocate_zeroed(size),
            1 => allocate(size),
            _ => allocate_aligned(size, align),
        };
        let block = Block::new(at.expect("there is memory"), size, number);
        if next(3) == 0 {
            let size = size / 2 + next(size as u64) as usize / 8 * 8;
            // SAFETY: the block is allocated, and only its replacement is used afterwards.
            let at = unsafe { resize(block.at, size) }.expect("there is memory");
            // SAFETY: resizing keeps the first word, which was written.
            assert_eq!(unsafe { at.cast::<u64>().read() }, number);
            blocks.insert(number, Block::new(at, size, number));
        } else {
            blocks.insert(number, block);
        }
        if blocks.len() > 200 {
            let from = next(number);
            let chosen = blocks.range(from..).next().map(|(number, _)| *number);
            if let Some(block) = chosen.and_then(|number| blocks.remove(&number)) {
                block.free();
            }
        }
        assert_eq!(errno::get(), 77);
    }
    let ranges = blocks.values().map(|block| (block.at.addr().get(), block.size));
    let by_address: BTreeMap<usize, usize> = ranges.collect();
    let mut end = 0;
    for (at, size) in by_address {
        assert!(at >= end, "two blocks overlap");
        end = at + size;
    }
    blocks.into_values().for_each(Block::free);
}

#[test]
fn large_blocks_never_overlap() {
    let divisor = if thiscpu_test_support::is_quick() { 8 } else { 1 };
    churn(1, 4_000 / divisor);
    std::thread::scope(|threads| {
        for seed in 2..5 {
            threads.spawn(move || churn(seed, 1_500 / divisor));
        }
    });
}

#[test]
fn growing_blocks_keep_their_content_and_alignment() {
    const STEP: usize = 3 * 64 * KIB;
    // The last word before a size that the block had.
    let word = |block: NonNull<u8>, size: usize| {
        // SAFETY: the block, which this test owns, has at least this size.
        unsafe { &mut *block.as_ptr().byte_add(size - 8).cast::<u64>() }
    };
    std::thread::scope(|threads| {
        for align in [16, 1 << 16, 1 << 21, 1 << 23] {
            threads.spawn(move || {
                let layout = |size| Layout::from_size_align(size, align).expect("a layout");
                // SAFETY: the size is not 0.
                let mut at = unsafe { ThisCpuAlloc.alloc(layout(STEP)) };
                let mut others = Vec::new();
                for size in (1..300).map(|number| number * STEP) {
                    let block = NonNull::new(at).expect("there is memory");
                    assert!(at.addr().is_multiple_of(align));
                    *word(block, size) = size as u64;
                    // Something is behind it from time to time.
                    others.extend(
                        size.is_multiple_of(7 * STEP).then(|| allocate(STEP).expect("memory")),
                    );
                    // SAFETY: the block has this layout, and only its replacement is used.
                    at = unsafe { ThisCpuAlloc.realloc(at, layout(size), size + STEP) };
                }
                let block = NonNull::new(at).expect("there is memory");
                for size in (1..300).map(|number| number * STEP) {
                    assert_eq!(*word(block, size), size as u64);
                }
                for block in others.into_iter().chain([block]) {
                    // SAFETY: the block is allocated, and not used any more.
                    unsafe { free(block) };
                }
            });
        }
    });
}

#[test]
fn double_free_of_moved_block_aborts() {
    // Other tests allocate too, so the next block may be elsewhere.
    let mut blocks: Vec<_> = (0..50).map(|_| allocate(5 << 20).expect("memory")).collect();
    blocks.sort();
    let behind = |pair: &[NonNull<u8>]| pair[1].addr().get() - pair[0].addr().get() == 5 << 20;
    let at = blocks.windows(2).position(behind).expect("two blocks one behind the other");
    let old = blocks.remove(at);
    // SAFETY: the block is allocated, and only its replacement is used.
    let moved = unsafe { resize(old, 11 << 20) }.expect("memory");
    assert_ne!(moved, old, "the block was not moved, so this test shows nothing");
    let status = child::status_of(|| {
        // SAFETY: no block is at this address, so the call aborts the child.
        unsafe { free(old) };
        0
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "{status:#x}");
    // SAFETY: all are allocated, and not used any more.
    blocks.into_iter().chain([moved]).for_each(|block| unsafe { free(block) });
}

#[test]
fn aligned_large_block_is_no_larger() {
    let block = allocate_aligned(100 * KIB, 1 << 24).unwrap();
    assert!(block.addr().get().is_multiple_of(1 << 24));
    // SAFETY: the block is allocated, and not used any more.
    unsafe {
        assert_eq!(usable_size(block), 128 * KIB);
        free(block);
    }
}

#[test]
fn failed_large_allocation_keeps_errno() {
    errno::set(77);
    assert_eq!(allocate(usize::MAX / 2), None);
    assert_eq!(allocate(1 << 46), None);
    assert_eq!(allocate_aligned(1 << 20, 1 << 48), None);
    assert_eq!(errno::get(), 77);
    child::assert_holds(|| {
        let is_limited = memory::set_limit(libc::RLIMIT_AS, 0).is_ok();
        errno::set(77);
        // This asks the kernel, which refuses and sets `errno`.
        let is_refused = allocate(1 << 33).is_none() && allocate_zeroed(1 << 33).is_none();
        is_limited && is_refused && errno::get() == 77
    });
}

/// Takes blocks of a size until there is no more memory.
fn exhaust(size: usize) -> Vec<NonNull<u8>> {
    std::iter::from_fn(|| allocate(size)).collect()
}

#[test]
fn shrinking_succeeds_without_memory() {
    child::assert_holds(|| {
        let block = allocate(4096 * KIB).expect("there is memory");
        memory::set_limit(libc::RLIMIT_AS, 0).expect("a limit can be set");
        let _kept = exhaust(1024 * KIB);
        // The block may move after all. The child inherited the lanes of the other tests' threads,
        // and the call may find a free block there that `exhaust` could not take.
        // SAFETY: the block is allocated, and not used afterwards.
        unsafe { resize(block, 1024 * KIB).is_some() }
    });
}

/// Leaves only single chunks, although slabs of the class have 31.
#[test]
fn block_fits_chunk_between_others_when_slab_does_not() {
    child::assert_holds(|| {
        let room = allocate(24 << 20).expect("there is memory");
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free(room) };
        memory::set_limit(libc::RLIMIT_AS, 0).expect("a limit can be set");
        let mut blocks = exhaust(64 * KIB);
        blocks.sort();
        for block in blocks.iter().step_by(2) {
            // SAFETY: the block is allocated, and not used any more.
            unsafe { free(*block) };
        }
        blocks.len() > 100 && exhaust(62 * KIB).len() > blocks.len() / 4
    });
}

#[test]
fn interior_free_of_block_of_4_gib_is_reported() {
    let Some(block) = allocate(4 << 30) else { return };
    child::assert_aborts("free: pointer into the middle", || {
        // SAFETY: the address is in the block. The error is what this test is about.
        unsafe { free(block.add(16)) };
    });
}
