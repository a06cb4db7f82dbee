//! Large blocks: each is one user's, wherever it was put, and to get and to free them changes no `errno`.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use thiscpu_malloc::{allocate, allocate_aligned, allocate_zeroed, free, resize, usable_size};

const KIB: usize = 1 << 10;

/// A block, with its number at its beginning and at its end.
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
            // SAFETY: both are in the block.
            unsafe { word.write(number) };
        }
        block
    }

    fn check(&self) {
        // SAFETY: both are in the block, and were written.
        assert_eq!(self.words().map(|word| unsafe { word.read() }), [self.number; 2]);
        // SAFETY: it is a block.
        assert!(unsafe { usable_size(self.at) } >= self.size);
    }

    fn free(self) {
        self.check();
        // SAFETY: it is a block, and nobody uses it any more.
        unsafe { free(self.at) };
    }
}

fn set_errno(value: i32) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = value };
}

fn errno() -> i32 {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Blocks of all sizes and alignments that come and go at random; `next` is what is random.
fn come_and_go(seed: u64, rounds: u64) {
    let mut state = seed;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut blocks: BTreeMap<u64, Block> = BTreeMap::new();
    for number in 0..rounds {
        set_errno(77);
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
            // SAFETY: it is a block; what is in place of it is as large as both, at least.
            let at = unsafe { resize(block.at, size) }.expect("there is memory");
            // SAFETY: the first word is there, as it was.
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
        assert_eq!(errno(), 77);
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
    come_and_go(1, 4_000);
    std::thread::scope(|threads| {
        for seed in 2..5 {
            threads.spawn(move || come_and_go(seed, 1_500));
        }
    });
}

#[test]
fn aligned_large_block_is_no_larger() {
    let block = allocate_aligned(100 * KIB, 1 << 24).unwrap();
    assert!(block.addr().get().is_multiple_of(1 << 24));
    // SAFETY: it is a block, and nobody uses it.
    unsafe {
        assert_eq!(usable_size(block), 128 * KIB);
        free(block);
    }
}

#[test]
fn failed_large_allocation_keeps_errno() {
    set_errno(77);
    assert_eq!(allocate(usize::MAX / 2), None);
    assert_eq!(allocate(1 << 46), None);
    assert_eq!(allocate_aligned(1 << 20, 1 << 46), None);
    assert_eq!(errno(), 77);
    // SAFETY: the child uses the allocator, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a plain structure.
        let is_limited = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const none) } == 0;
        set_errno(77);
        // The system is asked, and says why not.
        let is_refused = allocate(1 << 33).is_none() && allocate_zeroed(1 << 33).is_none();
        let is_well = is_limited && is_refused && errno() == 77;
        // SAFETY: ends the child without running anything.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
